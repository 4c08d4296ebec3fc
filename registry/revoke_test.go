// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/mtls"
)

// What was replaced has not ended yet.
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
