// SPDX-License-Identifier: Apache-2.0

package guard

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

const testOwner = "test"

func newGuards(t *testing.T) *Dir {
	t.Helper()
	return New(filepath.Join(t.TempDir(), "guards"), "")
}

func mustSet(t *testing.T, g *Dir, id, reason string) {
	t.Helper()
	if err := g.Set(id, testOwner, reason); err != nil {
		t.Fatal(err)
	}
}

func TestGuardIsListedUntilItIsCleared(t *testing.T) {
	g := newGuards(t)
	mustSet(t, g, domainA, "first reason")
	mustSet(t, g, domainA, "volume data is being folded")
	mustSet(t, g, domainB, "other")

	if has, err := g.Has(domainA, testOwner); !has || err != nil {
		t.Errorf("Has = %v, %v after Set", has, err)
	}
	want := map[string]string{domainA: "volume data is being folded [test]", domainB: "other [test]"}
	got, err := g.List()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("guards (-want +got):\n%s", diff)
	}

	for range 2 { // the second call finds nothing, which is no error
		if err := g.Clear(domainA, testOwner); err != nil {
			t.Fatal(err)
		}
	}
	if has, err := g.Has(domainA, testOwner); has || err != nil {
		t.Errorf("Has = %v, %v after Clear", has, err)
	}
}

func TestGuardsBeforeTheFirstSetAreNone(t *testing.T) {
	g := newGuards(t)
	got, err := g.List()
	if err != nil || len(got) != 0 {
		t.Errorf("List = %v, %v without a directory", got, err)
	}
	if err := g.Clear(domainA, testOwner); err != nil {
		t.Errorf("Clear without a directory: %v", err)
	}
	if has, err := g.Has(domainA, testOwner); has || err != nil {
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
	if diff := cmp.Diff(map[string]string{domainA: "reason [test]"}, got); diff != "" {
		t.Errorf("guards (-want +got):\n%s", diff)
	}
}

func TestOnlyAUUIDAsLibvirtWritesItIsGuarded(t *testing.T) {
	g := newGuards(t)
	for _, id := range []string{
		"", "..", "../" + domainA, "/etc/passwd", domainA + "/x", domainA + "\x00",
		strings.ToUpper(domainA), "{" + domainA + "}", "urn:uuid:" + domainA, strings.ReplaceAll(domainA, "-", ""),
	} {
		if err := g.Set(id, testOwner, "x"); err == nil {
			t.Errorf("Set(%q) was accepted", id)
		}
		if err := g.Clear(id, testOwner); err == nil {
			t.Errorf("Clear(%q) was accepted", id)
		}
		if _, err := g.Has(id, testOwner); err == nil {
			t.Errorf("Has(%q) was accepted", id)
		}
	}
	if _, err := os.Stat(g.dir); err == nil {
		t.Error("a refused id made the directory")
	}
}

func TestAGuardStaysUntilItsLastOwnerHasClearedIt(t *testing.T) {
	g := newGuards(t)
	for _, owner := range []string{"migration 1", "migration 11"} {
		if err := g.Set(domainA, owner, "moved for "+owner); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Clear(domainA, "migration 1"); err != nil {
		t.Fatal(err)
	}
	got, err := g.List()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{domainA: "moved for migration 11 [migration 11]"}, got); diff != "" {
		t.Errorf("guards (-want +got):\n%s", diff)
	}
	if has, err := g.Has(domainA, "migration 1"); has || err != nil {
		t.Errorf("Has = %v, %v of an owner that has cleared its guard", has, err)
	}
	if err := g.Clear(domainA, "migration 11"); err != nil {
		t.Fatal(err)
	}
	if got, err := g.List(); err != nil || len(got) != 0 {
		t.Errorf("guards %v are left (%v)", got, err)
	}
}
