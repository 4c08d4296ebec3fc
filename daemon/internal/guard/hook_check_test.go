// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Enforced must agree with the hook's behaviour.
func TestEnforcedAgreesWithTheHook(t *testing.T) {
	for _, tt := range []struct {
		name     string
		hookDir  func(dir string) string // where the hook looks, given the guards' directory
		dirFile  func(dir string) string // content of the file that replaces it, "" for none
		mode     os.FileMode
		complain string // "" for a hook that works
	}{
		{name: "same directory", mode: 0o755},
		{name: "same directory, other spelling", hookDir: func(dir string) string { return dir + "//." }, mode: 0o755},
		{name: "other directory", hookDir: func(string) string { return "/nonexistent/guards" }, mode: 0o755, complain: "looks for guards in /nonexistent/guards"},
		{name: "listed in the file", hookDir: func(string) string { return "/nonexistent/guards" }, dirFile: func(dir string) string { return "/elsewhere\n" + dir + "\n" }, mode: 0o755},
		{name: "not listed in the file", dirFile: func(string) string { return "/elsewhere" }, mode: 0o755, complain: "looks for guards in /elsewhere"},
		{name: "not executable", mode: 0o644, complain: "not an executable file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuards(t)
			look := g.dir
			if tt.hookDir != nil {
				look = tt.hookDir(g.dir)
			}
			h := newHook(t, look)
			if err := os.Chmod(h.path, tt.mode); err != nil {
				t.Fatal(err)
			}
			if tt.dirFile != nil {
				if err := os.WriteFile(h.guardDirFile, []byte(tt.dirFile(g.dir)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			g = New(g.dir, h.path)

			err := g.Enforced()
			if (err == nil) != (tt.complain == "") || (err != nil && !strings.Contains(err.Error(), tt.complain)) {
				t.Errorf("Enforced() = %v, want an error about %q", err, tt.complain)
			}
			if tt.mode != 0o755 {
				return // libvirt would not run the hook
			}
			mustSet(t, g, domainA, "reason")
			if code, text := h.start(t, domainXML(domainA)); (code == 1) != (err == nil) {
				t.Errorf("Enforced() = %v, but the hook exits %d, %q", err, code, text)
			}
		})
	}
}

func TestGuardsWithoutAHookAreNotEnforced(t *testing.T) {
	g := New(t.TempDir(), filepath.Join(t.TempDir(), "volferry-guard"))
	if err := g.Enforced(); err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("Enforced() = %v without a hook", err)
	}
}
