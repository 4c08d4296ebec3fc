// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
)

// output runs one of the program's commands, and returns its standard output.
func output(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, talk bytes.Buffer
	err := run(t.Context(), args, &out, &talk)
	if talk.Len() > 0 {
		t.Errorf("%q talked: %s", args, talk.String())
	}
	return out.String(), err
}

// okay is output for a command that must succeed.
func okay(t *testing.T, args ...string) string {
	t.Helper()
	out, err := output(t, args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out
}

func identity(t *testing.T, file string) mtls.Identity {
	t.Helper()
	return must(mtls.IdentityOfFile(file))(t)
}

func TestCertificatesFromTheAuthorityToTheDenyList(t *testing.T) {
	dir := t.TempDir()
	at := func(args ...string) []string { return append(args, "--tls-dir", filepath.Join(dir, "tls")) }
	okay(t, at("init-ca", "--server-name", "reg.example", "--server-name", "127.0.0.1")...)
	server := filepath.Join(dir, "tls", "server.crt")
	if diff := cmp.Diff([]string{"reg.example", "127.0.0.1"}, mtls.ServerNames(must(mtls.ReadCertificate(filepath.Dir(server), filepath.Base(server)))(t))); diff != "" {
		t.Errorf("names of the server (-want +got):\n%s", diff)
	}
	if _, err := output(t, at("init-ca")...); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second authority: %v", err)
	}

	host, operator := filepath.Join(dir, "a"), filepath.Join(dir, "ann")
	okay(t, at("issue-cert", "host", "a", "--id", hostID, "--out", host)...)
	if id := identity(t, filepath.Join(host, "host.crt")); id.ID != hostID || id.Name != "a" || id.Kind != mtls.KindHost {
		t.Errorf("host = %+v", id)
	}
	okay(t, at("issue-cert", "operator", "--role", "operate", "ann", "--days", "90", "--out", operator)...)
	ann := identity(t, filepath.Join(operator, "operator.crt"))
	if ann.Role != httpjson.Operate || ann.Name != "ann" || ann.NotAfter.Sub(ann.NotBefore).Hours() < 90*24 {
		t.Errorf("operator = %+v", ann)
	}

	// A renewal keeps the identity and gets another key.
	okay(t, at("issue-cert", "operator", "ann", "--replace", "--out", operator)...)
	again := identity(t, filepath.Join(operator, "operator.crt"))
	if again.Role != ann.Role || again.SPKI == ann.SPKI {
		t.Errorf("renewed = %+v, before %+v", again, ann)
	}
	okay(t, at("issue-cert", "host", "a", "--replace", "--out", host)...)
	if id := identity(t, filepath.Join(host, "host.crt")); id.ID != hostID {
		t.Errorf("renewed host = %+v", id)
	}
	before := must(os.ReadFile(server))(t)
	okay(t, at("issue-cert", "server", "--replace")...)
	if bytes.Equal(before, must(os.ReadFile(server))(t)) || len(mtls.ServerNames(must(mtls.ReadCertificate(filepath.Dir(server), filepath.Base(server)))(t))) != 2 {
		t.Error("the server certificate was not renewed as it was")
	}

	if out := okay(t, at("revoke", filepath.Join(host, "host.crt"))...); !strings.Contains(out, "revoked") {
		t.Errorf("revoke says %q", out)
	}
	okay(t, at("revoke", strings.ToUpper(ann.SPKI))...)
	if out := okay(t, at("revoke", ann.SPKI)...); !strings.Contains(out, "already") {
		t.Errorf("revoke says %q", out)
	}
	list := string(must(os.ReadFile(filepath.Join(dir, "tls", mtls.DenyListFile)))(t))
	if !strings.Contains(list, ann.SPKI) || !strings.Contains(list, identity(t, filepath.Join(host, "host.crt")).SPKI) {
		t.Errorf("deny-list:\n%s", list)
	}
}

func TestCertificateCommandsThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	tls, host := filepath.Join(dir, "tls"), filepath.Join(dir, "a")
	okay(t, "init-ca", "--server-name", "reg.example", "--tls-dir", tls)
	okay(t, "issue-cert", "host", "a", "--out", host, "--tls-dir", tls)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no kind":                {[]string{"issue-cert"}, "give issue-cert"},
		"unknown kind":           {[]string{"issue-cert", "guest", "a"}, `not for "guest"`},
		"no name":                {[]string{"issue-cert", "host"}, "one NAME"},
		"two names":              {[]string{"issue-cert", "host", "a", "b"}, "one NAME"},
		"name with a slash":      {[]string{"issue-cert", "host", "../a"}, "is not allowed"},
		"no UUID":                {[]string{"issue-cert", "host", "b", "--id", "b"}, "is not a UUID"},
		"files are there":        {[]string{"issue-cert", "host", "a", "--out", host}, "--replace"},
		"replaced by another":    {[]string{"issue-cert", "host", "b", "--out", host, "--replace"}, "not replaced by"},
		"another id of a host":   {[]string{"issue-cert", "host", "a", "--out", host, "--replace", "--id", hostID}, "keeps its id"},
		"no role":                {[]string{"issue-cert", "operator", "ann"}, "--role"},
		"unknown role":           {[]string{"issue-cert", "operator", "ann", "--role", "root"}, "read, operate and fence"},
		"role of a host":         {[]string{"issue-cert", "host", "b", "--role", "read"}, "of operators alone"},
		"id of an operator":      {[]string{"issue-cert", "operator", "ann", "--id", hostID, "--role", "read"}, "of hosts alone"},
		"too long":               {[]string{"issue-cert", "host", "b", "--days", "91"}, "1 to 90 days"},
		"not at all":             {[]string{"issue-cert", "host", "b", "--days", "0"}, "1 to 90 days"},
		"server name with a dot": {[]string{"issue-cert", "server", ".reg", "--replace"}, "neither a host name"},
		"unknown flag":           {[]string{"issue-cert", "host", "b", "--dance"}, "dance"},
		"nothing to revoke":      {[]string{"revoke"}, "give revoke"},
		"revoke nobody":          {[]string{"revoke", "ann"}, "neither a certificate"},
		"revoke the authority":   {[]string{"revoke", filepath.Join(tls, "ca.crt")}, "authority's"},
		"bad server name":        {[]string{"init-ca", "--server-name", "a b", "--tls-dir", filepath.Join(dir, "other")}, "neither a host name"},
		"no authority":           {[]string{"issue-cert", "host", "b", "--tls-dir", filepath.Join(dir, "none")}, "init-ca makes it"},
		"relative directory":     {[]string{"init-ca", "--tls-dir", "tls"}, "absolute path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			args := tc.args
			if !strings.Contains(strings.Join(args, " "), "--tls-dir") {
				args = append(args, "--tls-dir", tls)
			}
			if out, err := output(t, args...); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(out, "good until") {
				t.Errorf("output %q, error = %v, want %q", out, err, tc.want)
			}
			if left := must(os.ReadDir("."))(t); len(left) != 0 {
				t.Errorf("it left %v", left)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "other")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("names that are refused left a directory: %v", err)
	}
}

func TestEveryCommandHelps(t *testing.T) {
	for _, c := range commands {
		var out, talk bytes.Buffer
		if err := run(t.Context(), []string{c.name, "--help"}, &out, &talk); err != nil || !strings.Contains(talk.String(), c.summary) || !strings.Contains(talk.String(), "-"+c.place) {
			t.Errorf("%s: %v, %q", c.name, err, talk.String())
		}
		if !strings.Contains(usage(), c.name+" "+c.args) {
			t.Errorf("the help of the program does not have %s", c.name)
		}
	}
}

func TestTheKeyOfTheAuthorityIsWhereTheRegistryNeedNotRead(t *testing.T) {
	dir := t.TempDir()
	tls, ca := filepath.Join(dir, "tls"), filepath.Join(dir, "ca")
	key := filepath.Join(ca, mtls.CAKeyFile)
	said := okay(t, "init-ca", "--server-name", "localhost", "--tls-dir", tls, "--ca-dir", ca)
	if !strings.Contains(said, key) {
		t.Errorf("it says %q, without where the key is", said)
	}
	if _, err := os.Stat(filepath.Join(tls, mtls.CAKeyFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a key in the TLS directory: %v", err)
	}
	issue := []string{"issue-cert", "host", "a", "--tls-dir", tls, "--out", filepath.Join(dir, "a")}
	if _, err := output(t, issue...); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a certificate was made without the key: %v", err)
	}
	okay(t, append(issue, "--ca-dir", ca)...)

	const warning = "the registry can read the key"
	warned := func(args ...string) bool {
		p := start(t, dir, append([]string{"--listen", "127.0.0.1:0", "--tls-dir", tls}, args...)...)
		p.end(t)
		return strings.Contains(p.log.b.String(), warning)
	}
	if warned() || !warned("--ca-dir", ca) {
		t.Error("the registry does not warn of a key that it can read, and of no other")
	}
}

func TestWhatRootMakesInTheTLSDirectoryIsItsOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: it needs root, who gives files away")
	}
	const registryUser = 12345
	dir := t.TempDir()
	tls := filepath.Join(dir, "tls")
	if err := errors.Join(os.Mkdir(tls, 0o700), os.Chown(tls, registryUser, registryUser)); err != nil {
		t.Fatal(err)
	}
	owner := func() uint32 {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(tls, mtls.ServerKeyFile), &st); err != nil {
			t.Fatal(err)
		}
		return st.Uid
	}
	at := []string{"--tls-dir", tls, "--ca-dir", filepath.Join(dir, "ca")}
	okay(t, append([]string{"init-ca", "--server-name", "localhost"}, at...)...)
	if uid := owner(); uid != registryUser {
		t.Errorf("the new key is of uid %d", uid)
	}
	okay(t, append([]string{"issue-cert", "server", "--replace"}, at...)...)
	if uid := owner(); uid != registryUser {
		t.Errorf("the renewed key is of uid %d", uid)
	}
}
