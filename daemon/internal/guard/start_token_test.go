// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tokenXML returns the definition of a restore with a text for the hook.
func tokenXML(id, text string) string {
	return "<domain type='kvm'>\n  <uuid>" + id + "</uuid>\n  <metadata>\n    <volferry:pass xmlns:volferry=\"urn:volferry:pass\">" +
		text + "</volferry:pass>\n  </metadata>\n</domain>\n"
}

func mustIssueToken(t *testing.T, g *Dir) string {
	t.Helper()
	text, err := g.IssueStartToken(domainA, testOwner)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (h hook) lets(t *testing.T, xml string) bool {
	t.Helper()
	code, text := h.start(t, xml)
	if (code == 0) != (text == "") || code > 1 {
		t.Errorf("the hook exits %d and says %q", code, text)
	}
	return code == 0
}

func TestHookLetsOnlyTheStartWithTheTokenThrough(t *testing.T) {
	g := newGuards(t)
	h := newHook(t, g.dir)
	mustSet(t, g, domainA, "it is saved")
	first := mustIssueToken(t, g)
	second := mustIssueToken(t, g)
	for what, c := range map[string]struct {
		xml  string
		want bool
	}{
		"a start by anybody":   {domainXML(domainA), false},
		"an empty token":       {tokenXML(domainA, ""), false},
		"the token of before":  {tokenXML(domainA, first), false},
		"a part of it":         {tokenXML(domainA, second[:35]), false},
		"the owner's mark":     {tokenXML(domainA, ownerSuffix(testOwner)), false},
		"the token":            {tokenXML(domainA, second), true},
		"a domain without one": {tokenXML(domainB, second), true},
	} {
		if got := h.lets(t, c.xml); got != c.want {
			t.Errorf("%s is let go: %t", what, got)
		}
	}
	mustSet(t, g, domainB, "it is saved as well")
	if h.lets(t, tokenXML(domainB, second)) {
		t.Error("the token of one domain lets another go")
	}
}

func TestAStartTokenOpensNoGuardOfAnother(t *testing.T) {
	g := newGuards(t)
	h := newHook(t, g.dir)
	mustSet(t, g, domainA, "it is saved")
	for _, reason := range []string{"its host was fenced", "for [test]", "[test] "} {
		if err := g.Set(domainA, "fence", reason); err != nil {
			t.Fatal(err)
		}
		if h.lets(t, tokenXML(domainA, mustIssueToken(t, g))) {
			t.Errorf("the token of one owner opens the guard of another: %q", reason)
		}
	}
	if err := g.Clear(domainA, "fence"); err != nil {
		t.Fatal(err)
	}
	if !h.lets(t, tokenXML(domainA, mustIssueToken(t, g))) {
		t.Error("the token does not open the guard of its owner")
	}
}

func TestAStartTokenEndsWithEveryChangeOfTheGuard(t *testing.T) {
	g := newGuards(t)
	h := newHook(t, g.dir)
	for what, end := range map[string]func() error{
		"RevokeStartToken": func() error { return g.RevokeStartToken(domainA) },
		"Set":              func() error { return g.Set(domainA, testOwner, "saved again") },
		"Set of another":   func() error { return g.Set(domainA, "fence", "fenced") },
		"Clear of another": func() error { return g.Clear(domainA, "fence") },
		"Clear":            func() error { return g.Clear(domainA, testOwner) },
	} {
		mustSet(t, g, domainA, "it is saved")
		text := mustIssueToken(t, g)
		if err := end(); err != nil {
			t.Fatal(err)
		}
		lets := h.lets(t, tokenXML(domainA, text)) // Clear removes the guard too
		if lets != (what == "Clear") {
			t.Errorf("after %s the start with the token is let go: %t", what, lets)
		}
		if _, err := os.Lstat(filepath.Join(g.dir, domainA+startTokenSuffix)); !os.IsNotExist(err) {
			t.Errorf("after %s the token is there: %v", what, err)
		}
		if err := g.Clear(domainA, "fence"); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.RevokeStartToken(domainA); err != nil {
		t.Errorf("RevokeStartToken without one = %v", err)
	}
}

// A process that can read a start token can start the domain.
func TestAStartTokenIsRootsAlone(t *testing.T) {
	g := newGuards(t)
	mustSet(t, g, domainA, "it is saved")
	mustIssueToken(t, g)
	info, err := os.Stat(filepath.Join(g.dir, domainA+startTokenSuffix))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token has mode %v, %v", info.Mode(), err)
	}
	if all, err := g.List(); err != nil || len(all) != 1 {
		t.Errorf("the guards are %v, %v", all, err)
	}
}

// In case of doubt the guard holds.
func TestHookRefusesWithAStartTokenThatItCannotRead(t *testing.T) {
	const text = "6d3c0b52-9f3e-4c57-8f3e-7a1de7a1bb22"
	for what, content := range map[string]string{
		"empty": "", "no owner": text + "\n", "no newline": text, "empty owner": text + "\n\n", "empty text": "\n [test]\n", "not ended": text + "\n [test]",
	} {
		g := newGuards(t)
		h := newHook(t, g.dir)
		mustSet(t, g, domainA, "it is saved")
		if err := os.WriteFile(filepath.Join(g.dir, domainA+startTokenSuffix), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if h.lets(t, tokenXML(domainA, text)) {
			t.Errorf("a token with %q (%s) lets go", content, what)
		}
	}
	for what, make := range map[string]func(guard string) error{
		"a directory as guard": func(guard string) error { return os.Mkdir(guard, 0o700) },
		"an empty guard":       func(guard string) error { return os.WriteFile(guard, nil, 0o600) },
		"a dangling guard":     func(guard string) error { return os.Symlink("/nonexistent/guard", guard) },
		"a directory as token": func(guard string) error {
			if err := os.Remove(guard + startTokenSuffix); err != nil {
				return err
			}
			return os.Mkdir(guard+startTokenSuffix, 0o700)
		},
	} {
		g := newGuards(t)
		h := newHook(t, g.dir)
		guard := filepath.Join(g.dir, domainA)
		mustSet(t, g, domainA, "it is saved")
		token := mustIssueToken(t, g)
		if strings.HasSuffix(what, "guard") {
			if err := os.Remove(guard); err != nil {
				t.Fatal(err)
			}
		}
		if err := make(guard); err != nil {
			t.Fatal(err)
		}
		if code, _ := h.start(t, tokenXML(domainA, token)); code != 1 {
			t.Errorf("with %s the hook exits %d", what, code)
		}
	}
}

func TestAnOlderHookIsToldFromOneThatKnowsStartTokens(t *testing.T) {
	h := newHook(t, t.TempDir())
	if err := New(t.TempDir(), h.path).HookKnowsStartTokens(); err != nil {
		t.Errorf("HookKnowsStartTokens = %v of the hook that is shipped", err)
	}
	text, err := os.ReadFile(h.path)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(text), "\nPASS="+startTokenSuffix+"\n", "\n", 1)
	if err := os.WriteFile(h.path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := New(t.TempDir(), h.path).HookKnowsStartTokens(); err == nil || !strings.Contains(err.Error(), h.path) {
		t.Errorf("HookKnowsStartTokens = %v of one that knows none", err)
	}
	if err := New(t.TempDir(), filepath.Join(t.TempDir(), "none")).HookKnowsStartTokens(); err != nil {
		t.Errorf("HookKnowsStartTokens = %v without a hook", err)
	}
}
