// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/test/lab"
)

// The suite's domains do not boot. This one boots from its root disk with its firmware, so its
// definition must be complete.
func TestAUEFIGuestObeysLeavesAndComesBack(t *testing.T) {
	leftToTestConformance(t)
	noLeaks(t)
	env := newRealEnv(t)
	ctx := t.Context()
	first, second := env.bootVolume(t, "first"), env.bootVolume(t, "second")
	g, err := env.libvirtd.DefineGuest(ctx, lab.GuestConfig{
		Name: "uefi", Machine: "q35", UEFI: true,
		Disks: []lab.Disk{{Volume: lab.Volume{Path: first.Path, Format: first.Format}, Serial: "root"}},
	})
	must(t, err)
	t.Cleanup(func() { must(t, g.Close()) })
	env.boots(t, g, "first")
	env.obeys(t, g)

	before, err := env.conn.Domain(ctx, g.UUID)
	must(t, err)
	slot, err := env.conn.DiskDefinition(ctx, g.UUID, hv.Config, "vda")
	must(t, err)
	def, err := env.conn.DomainDefinition(ctx, g.UUID)
	must(t, err)
	old := filepath.Join(env.libvirtd.NVRAMDir(), "uefi_VARS.fd")
	if variables, err := os.ReadFile(old); err != nil || string(variables) != string(def.NVRAM) {
		t.Fatalf("the definition has %d bytes of NVRAM, the file %d: %v", len(def.NVRAM), len(variables), err)
	}
	must(t, env.conn.UndefineDomain(ctx, g.UUID))
	if _, err := os.Stat(old); err != nil {
		t.Errorf("NVRAM after the undefine: %v", err)
	}

	// Another host does not have this file.
	must(t, os.Remove(old))
	must(t, env.conn.DefineDomain(ctx, g.UUID, def, []hv.DiskSpec{{Target: "vda", Image: second, Slot: slot}}))
	after, err := env.conn.Domain(ctx, g.UUID)
	must(t, err)
	before.Config[0].Chain = []hv.Image{second}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("domain (-want +got):\n%s", diff)
	}
	again, err := env.conn.DomainDefinition(ctx, g.UUID)
	must(t, err)
	if string(again.NVRAM) != string(def.NVRAM) || !strings.Contains(again.Domain, g.UUID+"_VARS.fd") {
		t.Errorf("%d bytes of NVRAM came along as %d, in\n%s", len(def.NVRAM), len(again.NVRAM), again.Domain)
	}
	env.boots(t, g, "second")
	env.obeys(t, g)
}

// bootVolume makes a volume that prints its name when a guest boots from it.
func (e *realEnv) bootVolume(t *testing.T, name string) hv.Image {
	t.Helper()
	img := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: filepath.Join(e.dir, name+".raw")}
	must(t, lab.MakeBootVolume(t.Context(), lab.Volume{Path: img.Path, Format: img.Format}, lab.BootVolumeBytes, name))
	return img
}

func (e *realEnv) boots(t *testing.T, g *lab.Guest, want string) {
	t.Helper()
	must(t, e.conn.PowerOn(t.Context(), g.UUID))
	root, err := g.Root(t.Context())
	must(t, err)
	if root != want {
		t.Errorf("the guest booted from %q, want %q", root, want)
	}
}

// obeys requests a guest to shut down.
func (e *realEnv) obeys(t *testing.T, g *lab.Guest) {
	t.Helper()
	must(t, e.conn.Shutdown(t.Context(), g.UUID))
	must(t, g.WaitState(t.Context(), "shut off"))
}
