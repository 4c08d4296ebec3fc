// SPDX-License-Identifier: Apache-2.0

package mtls_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/mtls/mtlstest"
)

func newCA(t *testing.T) (*mtls.CA, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tls")
	return must(mtls.CreateCA(dir, dir)), dir
}

func parsed(p mtls.Pair) *x509.Certificate {
	block, _ := pem.Decode(p.Cert)
	return must(x509.ParseCertificate(block.Bytes))
}

func TestAuthorityIsNeverReplaced(t *testing.T) {
	_, dir := newCA(t)
	before := must(os.ReadFile(filepath.Join(dir, "ca.key")))
	for _, missing := range []string{"", "ca.crt", "ca.key"} {
		if missing != "" {
			must(0, os.Rename(filepath.Join(dir, missing), filepath.Join(dir, "away")))
		}
		if _, err := mtls.CreateCA(dir, dir); !errors.Is(err, fs.ErrExist) {
			t.Errorf("without %q: error = %v", missing, err)
		}
		if missing != "" {
			must(0, os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, missing)))
		}
	}
	if !bytes.Equal(before, must(os.ReadFile(filepath.Join(dir, "ca.key")))) {
		t.Error("the key is another one")
	}
	if info := must(os.Stat(filepath.Join(dir, "ca.key"))); info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v", info.Mode())
	}
	must(mtls.LoadCA(dir, dir))
}

func TestCertificateAndKeyThatDoNotBelongTogetherAreNoAuthority(t *testing.T) {
	_, dir := newCA(t)
	_, other := newCA(t)
	must(0, os.Rename(filepath.Join(other, "ca.key"), filepath.Join(dir, "ca.key")))
	if _, err := mtls.LoadCA(dir, dir); err == nil || !strings.Contains(err.Error(), "belong together") {
		t.Errorf("error = %v", err)
	}
}

func TestWhatIsIssued(t *testing.T) {
	ca, _ := newCA(t)
	now := time.Now().Truncate(time.Second)
	ca = mtlstest.At(ca, now)
	client, server := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serials := map[string]bool{}
	for name, tc := range map[string]struct {
		pair  mtls.Pair
		usage []x509.ExtKeyUsage
		uri   string
	}{
		"host":     {must(ca.IssueHost(hostID, "alpha", mtls.DefaultValidity)), client, "spiffe://volferry/host/" + hostID},
		"operator": {must(ca.IssueOperator(httpjson.Operate, "ann", mtls.DefaultValidity)), client, "spiffe://volferry/operator/operate/ann"},
		"server":   {must(ca.IssueServer([]string{"a.example", "::1"}, mtls.DefaultValidity)), server, ""},
	} {
		cert := parsed(tc.pair)
		uri := ""
		for _, u := range cert.URIs {
			uri += u.String()
		}
		if uri != tc.uri || !slices.Equal(cert.ExtKeyUsage, tc.usage) || cert.KeyUsage != x509.KeyUsageDigitalSignature || cert.IsCA {
			t.Errorf("%s: %q, for %v and %v, authority %t", name, uri, cert.ExtKeyUsage, cert.KeyUsage, cert.IsCA)
		}
		if !cert.NotBefore.Equal(now.Add(-5*time.Minute)) || !cert.NotAfter.Equal(now.Add(30*mtls.Day)) {
			t.Errorf("%s: good from %s to %s, made at %s", name, cert.NotBefore, cert.NotAfter, now)
		}
		if cert.SerialNumber.BitLen() != 127 || serials[cert.SerialNumber.String()] {
			t.Errorf("%s: serial number %s", name, cert.SerialNumber)
		}
		serials[cert.SerialNumber.String()] = true
		if diff := cmp.Diff(map[bool][]string{true: {"a.example", "::1"}}[name == "server"], mtls.ServerNames(cert)); diff != "" {
			t.Errorf("%s: names (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhatIsNotIssued(t *testing.T) {
	ca, _ := newCA(t)
	const ok = mtls.Day
	host := func(id, name string, valid time.Duration) error {
		_, err := ca.IssueHost(id, name, valid)
		return err
	}
	server := func(names ...string) error {
		_, err := ca.IssueServer(names, ok)
		return err
	}
	operator := func(role httpjson.Access, name string) error {
		_, err := ca.IssueOperator(role, name, ok)
		return err
	}
	_, late := mtlstest.At(ca, time.Now().Add(3600*mtls.Day)).IssueHost(hostID, "alpha", 90*mtls.Day)
	for name, err := range map[string]error{
		"host id":                   host("alpha", "alpha", ok),
		"host id in capitals":       host("1000000A-0000-4000-8000-000000000001", "alpha", ok),
		"host name":                 host(hostID, "a b", ok),
		"empty host name":           host(hostID, "", ok),
		"long host name":            host(hostID, strings.Repeat("a", 65), ok),
		"too long":                  host(hostID, "alpha", 91*mtls.Day),
		"no time at all":            host(hostID, "alpha", 0),
		"longer than the authority": late,
		"no role":                   operator(0, "ann"),
		"unknown role":              operator(9, "ann"),
		"operator with a slash":     operator(httpjson.Read, "../fence/ann"),
		"no server name":            server(),
		"wildcard":                  server("*.example"),
		"server with a space":       server("a b"),
		"URL":                       server("https://a.example"),
		"port":                      server("a.example:7643"),
		"empty server name":         server("a.example", ""),
	} {
		if err == nil {
			t.Errorf("%s: it was issued", name)
		}
	}
}

func TestFilesOfAPair(t *testing.T) {
	ca, _ := newCA(t)
	other, _ := newCA(t)
	dir := filepath.Join(t.TempDir(), "new")
	pair := must(ca.IssueHost(hostID, "alpha", mtls.Day))
	must(0, pair.Write(dir, "host"))
	for file, mode := range map[string]fs.FileMode{"ca.crt": 0o644, "host.crt": 0o644, "host.key": 0o600} {
		if info := must(os.Stat(filepath.Join(dir, file))); info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v, want %v", file, info.Mode().Perm(), mode)
		}
	}
	if err := pair.Write(dir, "host"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second time: %v", err)
	}
	if err := must(other.IssueHost(hostID, "alpha", mtls.Day)).Replace(dir, "host"); err == nil || !strings.Contains(err.Error(), "another authority") {
		t.Errorf("of another authority: %v", err)
	}
	if id := must(mtls.IdentityOfFile(filepath.Join(dir, "host.crt"))); id.ID != hostID || id.Name != "alpha" || id.SPKI != spkiOf(pair) {
		t.Errorf("identity = %+v", id)
	}
	next := must(ca.IssueHost(hostID, "alpha", mtls.Day))
	must(0, next.Replace(dir, "host"))
	if id := must(mtls.IdentityOfFile(filepath.Join(dir, "host.crt"))); id.SPKI != spkiOf(next) {
		t.Error("it was not replaced")
	}
}

func TestDenyListKeepsWhatIsOnIt(t *testing.T) {
	ca, dir := newCA(t)
	path := filepath.Join(dir, "denied")
	const byHand = "ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB # by hand"
	must(0, os.WriteFile(path, append(must(os.ReadFile(path)), byHand...), 0o644))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if added, err := mtls.Deny(dir, spkiOf(must(ca.IssueHost(hostID, "alpha", mtls.Day))), "alpha"); err != nil || !added {
				t.Errorf("added = %t, %v", added, err)
			}
		})
	}
	all.Wait()
	text := string(must(os.ReadFile(path)))
	if n := strings.Count(text, "# alpha, "); n != 8 || !strings.Contains(text, byHand+"\n") || !strings.HasPrefix(text, "# Public keys") {
		t.Errorf("%d were added:\n%s", n, text)
	}
	if added, err := mtls.Deny(dir, strings.ToLower(byHand[:64]), "again"); added || err != nil {
		t.Errorf("one that is on it: added = %t, %v", added, err)
	}
	must(0, os.WriteFile(path, []byte("nonsense\n"), 0o644))
	if _, err := mtls.Deny(dir, strings.Repeat("ab", 32), "x"); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a list that cannot be read: %v", err)
	}
	if got := string(must(os.ReadFile(path))); got != "nonsense\n" {
		t.Errorf("it was changed to %q", got)
	}
}
