// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/mtls"
)

// The replaced certificate has not expired yet.
func TestRevokingAHostRefusesAllThatItWasEverGivenAndNoOther(t *testing.T) {
	dir := t.TempDir()
	tls := filepath.Join(dir, "tls")
	at := func(args ...string) []string { return append(args, "--tls-dir", tls) }
	okay(t, at("init-ca", "--server-name", "localhost")...)
	issue := func(name string, more ...string) mtls.Identity {
		t.Helper()
		okay(t, at(append([]string{"issue-cert", "host", name, "--out", filepath.Join(dir, name)}, more...)...)...)
		return must(mtls.IdentityOfFile(filepath.Join(dir, name, "host.crt")))(t)
	}
	first, second, other := issue("alpha"), issue("alpha", "--replace"), issue("beta")
	if first.ID != second.ID || first.SPKI == second.SPKI {
		t.Fatalf("issued %+v and %+v", first, second)
	}
	if out := okay(t, at("revoke", first.ID)...); !strings.Contains(out, "2 certificates") {
		t.Errorf("revoke says %q", out)
	}
	denied := string(must(os.ReadFile(filepath.Join(tls, mtls.DenyListFile)))(t))
	for spki, want := range map[string]bool{first.SPKI: true, second.SPKI: true, other.SPKI: false} {
		if strings.Contains(denied, spki) != want {
			t.Errorf("the deny-list has %s: %t", spki, !want)
		}
	}
	if _, err := output(t, at("revoke", "10000000-0000-4000-8000-000000000009")...); err == nil || !strings.Contains(err.Error(), "no certificate is recorded") {
		t.Errorf("of a host that was given none: %v", err)
	}
}

func TestRootOpensNoDatabaseInTheDirectoryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: it needs root, who works in a directory of another user")
	}
	dir := t.TempDir()
	db := filepath.Join(dir, "registry.db")
	if err := errors.Join(os.WriteFile(db, nil, 0o600), os.Chown(dir, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"backup", filepath.Join(t.TempDir(), "copy")}, {"accept-restore", "--evidence", "none"}} {
		if _, err := output(t, append(args, "--db", db)...); err == nil || !strings.Contains(err.Error(), "setpriv --reuid 12345 ") {
			t.Errorf("%s: %v", args[0], err)
		}
	}
	if left := must(os.ReadDir(dir))(t); len(left) != 1 {
		t.Errorf("beside the database is %v", left)
	}
}

// The command must not keep the rights of root's group.
func TestTheAdviceToRootIsACommandThatTheOwnerOfTheDatabaseCanRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: it needs root, who works in a directory of another user")
	}
	top, err := os.MkdirTemp("/tmp", "owner") //nolint:usetesting // others may pass /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	dir, open, shut := filepath.Join(top, "db"), filepath.Join(top, "open"), filepath.Join(top, "shut")
	for _, made := range []error{os.Chmod(top, 0o755), os.Mkdir(dir, 0o700), os.Mkdir(open, 0o700), os.Mkdir(shut, 0o755), os.Chown(dir, 12345, 0), os.Chown(open, 12345, 0)} {
		if made != nil {
			t.Fatal(made)
		}
	}
	db, before := filepath.Join(dir, "registry.db"), os.Args
	defer func() { os.Args = before }()
	made := func(name string) string {
		return regexp.QuoteMeta(filepath.Join(dir, name)) + `\.[0-9]{8}T[0-9]{6}\.[0-9]{6}`
	}
	moved := func(name string) string {
		return " backup " + made(name) + "`, and move the file once it is made, since that user cannot make one in " + shut + ": `mv -n " + made(name) + " " + filepath.Join(shut, name) + "`"
	}
	for file, want := range map[string]string{
		filepath.Join(open, "copy"):         " backup " + filepath.Join(open, "copy") + "`",
		filepath.Join(shut, "copy"):         moved("copy"),
		filepath.Join(shut, "registry.db"):  moved("registry.db"), // and not the database itself
		filepath.Join(shut, "none", "copy"): "`mv -n ",
	} {
		os.Args = []string{"volferry-registry", "backup", file}
		_, err := output(t, "backup", file, "--db", db)
		if err == nil || !strings.Contains(err.Error(), "setpriv --reuid 12345 --regid 12345 --clear-groups volferry-registry backup ") || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("%s: %v; want %s", file, err, want)
		}
	}
}
