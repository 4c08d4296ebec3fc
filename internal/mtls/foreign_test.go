// SPDX-License-Identifier: Apache-2.0

package mtls_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/mtls"
)

// registryUser owns a TLS directory. Root writes files into it.
const registryUser = 12345

// foreign has a directory of root, and a directory of the registry's user with a TLS directory and
// an authority that root has made.
type foreign struct {
	home, tls, keys string
	ca              *mtls.CA
	// secret is a file of root in a directory of root.
	private, secret string
}

func newForeign(t *testing.T) foreign {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: it needs root, who works in a directory of another user")
	}
	dir := t.TempDir()
	f := foreign{home: filepath.Join(dir, "registry"), keys: filepath.Join(dir, "ca"), private: filepath.Join(dir, "private")}
	f.tls, f.secret = filepath.Join(f.home, "tls"), filepath.Join(f.private, "secret")
	must(0, errors.Join(os.MkdirAll(f.tls, 0o700), os.Mkdir(f.private, 0o700)))
	must(0, errors.Join(os.Chown(f.home, registryUser, registryUser), os.Chown(f.tls, registryUser, registryUser)))
	f.ca = must(mtls.CreateCA(f.tls, f.keys))
	return f
}

// writers are root's calls that change the TLS directory.
func (f foreign) writers() map[string]func() error {
	server := func() mtls.Pair { return must(f.ca.IssueServer([]string{"a.example"}, mtls.Day)) }
	spki := spkiOf(server())
	return map[string]func() error{
		"Write":   func() error { return server().Write(f.tls, "server") },
		"Replace": func() error { return server().Replace(f.tls, "server") },
		"Deny": func() error {
			_, err := mtls.Deny(f.tls, spki, "x")
			return err
		},
		"Record": func() error {
			return mtls.Record(f.tls, mtls.Identity{Kind: mtls.KindHost, ID: hostID, Name: "a", SPKI: spki})
		},
		"CreateCA": func() error {
			_, err := mtls.CreateCA(f.tls, f.keys+"-new")
			return err
		},
	}
}

// contents returns the files in a directory, with owner, mode and content.
func contents(dir string) map[string]string {
	all := map[string]string{}
	for _, e := range must(os.ReadDir(dir)) {
		path := filepath.Join(dir, e.Name())
		var st unix.Stat_t
		must(0, unix.Lstat(path, &st))
		text, _ := os.ReadFile(path) // a directory has no content
		all[e.Name()] = strings.Join([]string{e.Type().String(), string(text), string(rune(st.Uid)), string(rune(st.Mode))}, "\n")
	}
	return all
}

// The registry's user replaces the TLS directory by a link to a directory of root.
func TestRootWritesNothingWhereTheTLSDirectoryIsALinkOfAnotherUser(t *testing.T) {
	for _, name := range []string{"Write", "Replace", "Deny", "Record", "CreateCA"} {
		t.Run(name, func(t *testing.T) {
			f := newForeign(t)
			for _, file := range must(os.ReadDir(f.tls)) {
				if name != "CreateCA" {
					must(0, os.Rename(filepath.Join(f.tls, file.Name()), filepath.Join(f.private, file.Name())))
				}
			}
			write := f.writers()[name]
			must(0, os.RemoveAll(f.tls))
			must(0, os.Symlink(f.private, f.tls))
			must(0, os.Lchown(f.tls, registryUser, registryUser))
			before := contents(f.private)
			if err := write(); err == nil || !strings.Contains(err.Error(), "symbolic link") {
				t.Errorf("error = %v", err)
			}
			if diff := cmp.Diff(before, contents(f.private)); diff != "" {
				t.Errorf("the directory of root's has changed (-before +now):\n%s", diff)
			}
		})
	}
}

// The registry's user replaces each file by a link to a file of root. The content of that file is
// valid for each writer.
func TestRootReadsAndWritesNoFileThroughALinkInTheTLSDirectory(t *testing.T) {
	for _, tc := range []struct{ writer, file string }{
		{"Write", mtls.CACertFile},
		{"Write", mtls.ServerKeyFile},
		{"Replace", mtls.CACertFile},
		{"Deny", mtls.DenyListFile},
		{"Record", mtls.IssuedFile},
		{"CreateCA", mtls.CACertFile},
	} {
		t.Run(tc.writer+" "+tc.file, func(t *testing.T) {
			f := newForeign(t)
			at := filepath.Join(f.tls, tc.file)
			text, err := os.ReadFile(at)
			if err != nil {
				text = []byte("# secret\n")
			}
			text = append(text, "# secret\n"...)
			must(0, os.WriteFile(f.secret, text, 0o600))
			_ = os.Remove(at) // not all exist
			must(0, os.Symlink(f.secret, at))
			before := contents(f.private)
			if err := f.writers()[tc.writer](); err == nil {
				t.Error("it was done")
			}
			if diff := cmp.Diff(before, contents(f.private)); diff != "" {
				t.Errorf("the file of root's has changed (-before +now):\n%s", diff)
			}
			for name, now := range contents(f.tls) {
				if name != tc.file && strings.Contains(now, "# secret") {
					t.Errorf("%s is a copy of it", name)
				}
			}
			if target, err := os.Readlink(at); err != nil || target != f.secret {
				t.Errorf("in the place of the link is %q, %v", target, err)
			}
		})
	}
}

// Replacing a pair replaces the links under its names, and not their targets.
func TestAReplacedKeyGoesToTheOwnerOfTheDirectoryAndNoTargetOfALinkDoes(t *testing.T) {
	f := newForeign(t)
	must(0, os.WriteFile(f.secret, []byte("# secret\n"), 0o600))
	for _, file := range []string{mtls.ServerKeyFile, mtls.ServerCertFile} {
		must(0, os.Symlink(f.secret, filepath.Join(f.tls, file)))
	}
	before := contents(f.private)
	must(0, f.writers()["Replace"]())
	if diff := cmp.Diff(before, contents(f.private)); diff != "" {
		t.Errorf("the file of root's has changed (-before +now):\n%s", diff)
	}
	var st unix.Stat_t
	must(0, unix.Lstat(filepath.Join(f.tls, mtls.ServerKeyFile), &st))
	if st.Mode != unix.S_IFREG|0o600 || st.Uid != registryUser {
		t.Errorf("the key has mode %o and is of user %d", st.Mode, st.Uid)
	}
}

func TestAListThatNeverEndsIsNotReadWhole(t *testing.T) {
	ca, dir := newCA(t)
	spki := spkiOf(must(ca.IssueHost(hostID, "alpha", mtls.Day)))
	for file, use := range map[string]func() error{
		mtls.DenyListFile: func() error { _, err := mtls.Deny(dir, spki, "x"); return err },
		mtls.IssuedFile:   func() error { _, err := mtls.Issued(dir, hostID); return err },
	} {
		must(0, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
		must(0, os.Truncate(filepath.Join(dir, file), 1<<40)) // sparse
		if err := use(); err == nil || !strings.Contains(err.Error(), "has more than") {
			t.Errorf("%s: %v", file, err)
		}
	}
}
