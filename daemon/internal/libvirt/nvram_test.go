// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

func TestNVRAMIsReadAndReplacedInItsDirectoryOnly(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	c := New(Config{StateDir: dir})
	doc, err := domainxml.ParseDoc("<domain><os><nvram>" + domainxml.NVRAMHome + "web_VARS.fd</nvram></os></domain>")
	must(t, err)
	read := func() []byte {
		t.Helper()
		variables, err := c.readNVRAM(doc.Root())
		must(t, err)
		return variables
	}
	if got := read(); got != nil {
		t.Errorf("NVRAM of a guest that was never started = %q", got)
	}
	for _, content := range []string{"entries", "others"} {
		must(t, c.writeNVRAM("web_VARS.fd", []byte(content)))
		if got := string(read()); got != content {
			t.Errorf("NVRAM = %q, want %q", got, content)
		}
	}
	file := filepath.Join(dir, "nvram", "web_VARS.fd")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != nvramMode {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}

	must(t, os.WriteFile(outside, []byte("of the host"), 0o600))
	must(t, os.Remove(file))
	must(t, os.Symlink(outside, file))
	if variables, err := c.readNVRAM(doc.Root()); err == nil {
		t.Errorf("a link was followed to %q", variables)
	}
	must(t, c.writeNVRAM("web_VARS.fd", []byte("entries")))
	if text, err := os.ReadFile(outside); err != nil || string(text) != "of the host" {
		t.Errorf("through the link was written: %q, %v", text, err)
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
}

// A wrong libvirt_state_dir must not look like a guest without NVRAM: shelving would lose the
// NVRAM.
func TestNVRAMIsNotTakenForNoneWhereTheDirectoryOfLibvirtIsNotThere(t *testing.T) {
	c := New(Config{StateDir: filepath.Join(t.TempDir(), "elsewhere")})
	doc, err := domainxml.ParseDoc("<domain><os><nvram>" + domainxml.NVRAMHome + "web_VARS.fd</nvram></os></domain>")
	must(t, err)
	if variables, err := c.readNVRAM(doc.Root()); err == nil {
		t.Errorf("NVRAM = %q, without an error", variables)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
