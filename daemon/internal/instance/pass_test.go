// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// passXML is the definition of a restore that shows the hook a text.
func passXML(id, text string) string {
	return "<domain type='kvm'>\n  <uuid>" + id + "</uuid>\n  <metadata>\n    <volferry:pass xmlns:volferry=\"urn:volferry:pass\">" +
		text + "</volferry:pass>\n  </metadata>\n</domain>\n"
}

func mustPass(t *testing.T, g *Guards) string {
	t.Helper()
	text, err := g.Pass(domainA, testOwner)
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

func TestHookLetsOnlyTheStartWithThePassThrough(t *testing.T) {
	g := newGuards(t)
	h := newHook(t, g.dir)
	mustSet(t, g, domainA, "it is saved")
	first := mustPass(t, g)
	second := mustPass(t, g)
	for what, c := range map[string]struct {
		xml  string
		want bool
	}{
		"a start by anybody":   {domainXML(domainA), false},
		"an empty pass":        {passXML(domainA, ""), false},
		"the pass of before":   {passXML(domainA, first), false},
		"a part of it":         {passXML(domainA, second[:35]), false},
		"the owner's mark":     {passXML(domainA, mark(testOwner)), false},
		"the pass":             {passXML(domainA, second), true},
		"a domain without one": {passXML(domainB, second), true},
	} {
		if got := h.lets(t, c.xml); got != c.want {
			t.Errorf("%s is let go: %t", what, got)
		}
	}
	mustSet(t, g, domainB, "it is saved as well")
	if h.lets(t, passXML(domainB, second)) {
		t.Error("the pass of one domain lets another go")
	}
}

func TestAPassOpensNoGuardOfAnother(t *testing.T) {
	g := newGuards(t)
	h := newHook(t, g.dir)
	mustSet(t, g, domainA, "it is saved")
	for _, reason := range []string{"its host was fenced", "for [test]", "[test] "} {
		if err := g.Set(domainA, "fence", reason); err != nil {
			t.Fatal(err)
		}
		if h.lets(t, passXML(domainA, mustPass(t, g))) {
			t.Errorf("the pass of one owner opens the guard of another: %q", reason)
		}
	}
	if err := g.Clear(domainA, "fence"); err != nil {
		t.Fatal(err)
	}
	if !h.lets(t, passXML(domainA, mustPass(t, g))) {
		t.Error("the pass does not open the guard of its owner")
	}
}

func TestAPassEndsWithEveryChangeOfTheGuard(t *testing.T) {
	g := newGuards(t)
	h := newHook(t, g.dir)
	for what, end := range map[string]func() error{
		"EndPass":          func() error { return g.EndPass(domainA) },
		"Set":              func() error { return g.Set(domainA, testOwner, "saved again") },
		"Set of another":   func() error { return g.Set(domainA, "fence", "fenced") },
		"Clear of another": func() error { return g.Clear(domainA, "fence") },
		"Clear":            func() error { return g.Clear(domainA, testOwner) },
	} {
		mustSet(t, g, domainA, "it is saved")
		text := mustPass(t, g)
		if err := end(); err != nil {
			t.Fatal(err)
		}
		lets := h.lets(t, passXML(domainA, text)) // Clear takes the guard away too
		if lets != (what == "Clear") {
			t.Errorf("after %s the start with the pass is let go: %t", what, lets)
		}
		if _, err := os.Lstat(filepath.Join(g.dir, domainA+passSuffix)); !os.IsNotExist(err) {
			t.Errorf("after %s the pass is there: %v", what, err)
		}
		if err := g.Clear(domainA, "fence"); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.EndPass(domainA); err != nil {
		t.Errorf("EndPass without one = %v", err)
	}
}

// What is in a pass lets whoever knows it start the domain.
func TestAPassIsRootsAlone(t *testing.T) {
	g := newGuards(t)
	mustSet(t, g, domainA, "it is saved")
	mustPass(t, g)
	info, err := os.Stat(filepath.Join(g.dir, domainA+passSuffix))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the pass has mode %v, %v", info.Mode(), err)
	}
	if all, err := g.List(); err != nil || len(all) != 1 {
		t.Errorf("the guards are %v, %v", all, err)
	}
}

// In doubt the guard holds.
func TestHookRefusesWithAPassThatItCannotRead(t *testing.T) {
	const text = "6d3c0b52-9f3e-4c57-8f3e-7a1de7a1bb22"
	for what, content := range map[string]string{
		"empty": "", "no owner": text + "\n", "no newline": text, "empty owner": text + "\n\n", "empty text": "\n [test]\n", "not ended": text + "\n [test]",
	} {
		g := newGuards(t)
		h := newHook(t, g.dir)
		mustSet(t, g, domainA, "it is saved")
		if err := os.WriteFile(filepath.Join(g.dir, domainA+passSuffix), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if h.lets(t, passXML(domainA, text)) {
			t.Errorf("a pass with %q (%s) lets go", content, what)
		}
	}
	for what, make := range map[string]func(guard string) error{
		"a directory as guard": func(guard string) error { return os.Mkdir(guard, 0o700) },
		"an empty guard":       func(guard string) error { return os.WriteFile(guard, nil, 0o600) },
		"a dangling guard":     func(guard string) error { return os.Symlink("/nonexistent/guard", guard) },
		"a directory as pass": func(guard string) error {
			if err := os.Remove(guard + passSuffix); err != nil {
				return err
			}
			return os.Mkdir(guard+passSuffix, 0o700)
		},
	} {
		g := newGuards(t)
		h := newHook(t, g.dir)
		guard := filepath.Join(g.dir, domainA)
		mustSet(t, g, domainA, "it is saved")
		pass := mustPass(t, g)
		if strings.HasSuffix(what, "guard") {
			if err := os.Remove(guard); err != nil {
				t.Fatal(err)
			}
		}
		if err := make(guard); err != nil {
			t.Fatal(err)
		}
		if code, _ := h.start(t, passXML(domainA, pass)); code != 1 {
			t.Errorf("with %s the hook exits %d", what, code)
		}
	}
}

func TestAHookOfBeforeIsToldFromOneThatKnowsPasses(t *testing.T) {
	h := newHook(t, t.TempDir())
	if err := NewGuards(t.TempDir(), h.path).HookKnowsPasses(); err != nil {
		t.Errorf("HookKnowsPasses = %v of the hook that is shipped", err)
	}
	text, err := os.ReadFile(h.path)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(text), "\nPASS="+passSuffix+"\n", "\n", 1)
	if err := os.WriteFile(h.path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := NewGuards(t.TempDir(), h.path).HookKnowsPasses(); err == nil || !strings.Contains(err.Error(), h.path) {
		t.Errorf("HookKnowsPasses = %v of one that knows none", err)
	}
	if err := NewGuards(t.TempDir(), filepath.Join(t.TempDir(), "none")).HookKnowsPasses(); err != nil {
		t.Errorf("HookKnowsPasses = %v without a hook", err)
	}
}
