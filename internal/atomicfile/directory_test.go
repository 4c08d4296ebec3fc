// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// other is a user who owns nothing else.
const other = 12345

func openedDirectory(t *testing.T, path string) *Directory {
	t.Helper()
	d, err := OpenDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestADirectoryStaysTheOpenedOneWhateverIsAtItsPath(t *testing.T) {
	parent := t.TempDir()
	path, moved, elsewhere := filepath.Join(parent, "tls"), filepath.Join(parent, "moved"), filepath.Join(parent, "elsewhere")
	if err := errors.Join(os.Mkdir(path, 0o700), os.Mkdir(elsewhere, 0o700)); err != nil {
		t.Fatal(err)
	}
	d := openedDirectory(t, path)
	if err := errors.Join(os.Rename(path, moved), os.Symlink(elsewhere, path)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Write("a", []byte("x"), 0o600), d.WriteForOwner("b", nil, 0o600), d.SweepOld()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, names(t, moved)); diff != "" {
		t.Errorf("in the opened directory (-want +got):\n%s", diff)
	}
	if left := names(t, elsewhere); len(left) != 0 {
		t.Errorf("at its path now: %v", left)
	}
	if text, _, err := d.Read("a", 1); err != nil || string(text) != "x" {
		t.Errorf("read %q, %v", text, err)
	}
	if exists, err := d.Exists("c"); exists || err != nil {
		t.Errorf("exists = %t, %v", exists, err)
	}
}

func TestOnlyLinksOfRootAndTheCallerLeadToADirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: it needs root, who gives directories away")
	}
	dir := t.TempDir()
	for _, name := range []string{"mine/sub", "others/sub", "open"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"mine/absolute": filepath.Join(dir, "mine/sub"), "mine/relative": "../mine/./sub", "mine/chain": "relative", "mine/loop": "loop", "mine/away": "nowhere",
		"mine/given": "sub", "others/link": "sub", "open/link": "../mine/sub",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Lchown(filepath.Join(dir, "mine/given"), other, other), os.Chown(filepath.Join(dir, "others"), other, other), os.Chmod(filepath.Join(dir, "open"), 0o777)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(dir, "mine"))
	for path, opens := range map[string]bool{
		dir + "/mine/sub": true, dir + "/mine/absolute": true, dir + "/mine/relative": true, dir + "/mine/chain": true, "sub": true, "../others/sub": true, ".": true,
		dir + "/others/sub": true, dir + "/mine/loop": false, dir + "/mine/away": false, dir + "/mine/given": false, dir + "/others/link": false, dir + "/open/link": false,
	} {
		d, err := OpenDirectory(path)
		if (err == nil) != opens {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestMakeDirectoryMakesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b")
	if _, err := OpenDirectory(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	for range 2 {
		d, err := MakeDirectory(path, 0o700)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != fs.ModeDir|0o700 {
		t.Errorf("%v, %v", st, err)
	}
}

func TestOnlyASmallRegularFileIsReadInADirectory(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.WriteFile(at("file"), []byte("four"), 0o600), os.Symlink("file", at("link")), unix.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("dir"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	d := openedDirectory(t, dir)
	if text, owner, err := d.Read("file", 4); string(text) != "four" || owner != os.Geteuid() || err != nil {
		t.Errorf("%q, %d, %v", text, owner, err)
	}
	if _, _, err := d.Read("file", 3); err == nil {
		t.Error("more was read than was asked for")
	}
	for _, name := range []string{"link", "fifo", "dir", "absent"} {
		if _, _, err := d.Read(name, 4); err == nil || errors.Is(err, fs.ErrNotExist) != (name == "absent") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAFileWithSeveralNamesIsReadWhereOthersCanMakeNone: in other directories it may be a file that
// the user may not read.
func TestAFileWithSeveralNamesIsReadWhereOthersCanMakeNone(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "twice")
	if err := errors.Join(os.WriteFile(at, []byte("four"), 0o600), os.Link(at, filepath.Join(dir, "again"))); err != nil {
		t.Fatal(err)
	}
	d := openedDirectory(t, dir)
	if text, _, err := d.Read("twice", 4); string(text) != "four" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	for name, open := range map[string]func() error{
		"writable for others": func() error { return os.Chmod(dir, 0o777) },
		"of another user":     func() error { return errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, 12345, 12345)) },
	} {
		if name == "of another user" && os.Geteuid() != 0 {
			continue // it needs root
		}
		if err := open(); err != nil {
			t.Fatal(err)
		}
		text, _, err := d.Read("twice", 4)
		if err == nil || !strings.Contains(err.Error(), at+": it has 2 names") || !strings.Contains(err.Error(), "`find / -samefile "+at+"`") {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
