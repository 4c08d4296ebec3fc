// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	domainA = "6f2cbd1e-6c2f-4f0e-9a5b-0d6a0a6f4e11"
	domainB = "0c0f7a52-3a0e-4c57-8f3e-7a1de7a1bb22"
)

func newGuards(t *testing.T) *Guards {
	t.Helper()
	return NewGuards(filepath.Join(t.TempDir(), "guards"), "")
}

func mustSet(t *testing.T, g *Guards, id, reason string) {
	t.Helper()
	if err := g.Set(id, reason); err != nil {
		t.Fatal(err)
	}
}

func TestGuardIsListedUntilItIsCleared(t *testing.T) {
	g := newGuards(t)
	mustSet(t, g, domainA, "first reason")
	mustSet(t, g, domainA, "volume data is being folded")
	mustSet(t, g, domainB, "other")

	if has, err := g.Has(domainA); !has || err != nil {
		t.Errorf("Has = %v, %v after Set", has, err)
	}
	want := map[string]string{domainA: "volume data is being folded", domainB: "other"}
	got, err := g.List()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("guards (-want +got):\n%s", diff)
	}

	for range 2 { // the second finds nothing, which is no error
		if err := g.Clear(domainA); err != nil {
			t.Fatal(err)
		}
	}
	if has, err := g.Has(domainA); has || err != nil {
		t.Errorf("Has = %v, %v after Clear", has, err)
	}
}

func TestGuardsBeforeTheFirstSetAreNone(t *testing.T) {
	g := newGuards(t)
	got, err := g.List()
	if err != nil || len(got) != 0 {
		t.Errorf("List = %v, %v without a directory", got, err)
	}
	if err := g.Clear(domainA); err != nil {
		t.Errorf("Clear without a directory: %v", err)
	}
	if has, err := g.Has(domainA); has || err != nil {
		t.Errorf("Has = %v, %v without a directory", has, err)
	}
}

func TestForeignFilesAreNoGuards(t *testing.T) {
	g := newGuards(t)
	mustSet(t, g, domainA, "reason")
	if err := os.WriteFile(filepath.Join(g.dir, "README"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := g.List()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{domainA: "reason"}, got); diff != "" {
		t.Errorf("guards (-want +got):\n%s", diff)
	}
}

func TestOnlyAUUIDAsLibvirtWritesItIsGuarded(t *testing.T) {
	g := newGuards(t)
	for _, id := range []string{
		"", "..", "../" + domainA, "/etc/passwd", domainA + "/x", domainA + "\x00",
		strings.ToUpper(domainA), "{" + domainA + "}", "urn:uuid:" + domainA, strings.ReplaceAll(domainA, "-", ""),
	} {
		if err := g.Set(id, "x"); err == nil {
			t.Errorf("Set(%q) was accepted", id)
		}
		if err := g.Clear(id); err == nil {
			t.Errorf("Clear(%q) was accepted", id)
		}
		if _, err := g.Has(id); err == nil {
			t.Errorf("Has(%q) was accepted", id)
		}
	}
	if _, err := os.Stat(g.dir); err == nil {
		t.Error("a refused id made the directory")
	}
}
