// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/retry"
)

// testOwners: libvirt gives an image to QEMU's user, and restores the owner when a domain releases
// the image. If another domain had the image too, that domain could not open it again.
func testOwners(t *testing.T, env *realEnv) {
	const nobody = 65534
	user, err := env.conn.QEMUUser(t.Context(), "")
	must(t, err)
	if user.UID == 0 {
		t.Fatal("QEMU runs as root in the lab, which no host does")
	}
	qemu := int(user.UID)
	first, _ := env.define(t)
	second, _ := env.define(t)
	env.Start(t, first)
	env.Start(t, second)
	for _, c := range []struct {
		spec  hv.DiskSpec
		after int // owner after the last domain has released it
	}{
		{hv.DiskSpec{}, nobody},
		{hv.DiskSpec{Shareable: true}, qemu}, // libvirt cannot know that it was the last
		{hv.DiskSpec{ReadOnly: true}, qemu},
		{hv.DiskSpec{ReadOnly: true, Shareable: true}, qemu},
	} {
		spec := c.spec
		spec.Target, spec.Bus = "sda", "scsi" // removed without the guest
		spec.Image = hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: env.Path(t, "shared.raw")}
		env.CreateImage(t, spec.Image.Path, hvtest.Raw, 1<<20)
		must(t, os.Chown(spec.Image.Path, nobody, nobody))

		must(t, env.conn.AttachDisk(t.Context(), first, hv.Live, spec))
		if spec.Shareable || spec.ReadOnly {
			must(t, env.conn.AttachDisk(t.Context(), second, hv.Live, spec))
			env.unplug(t, second)
		}
		wantOwner(t, spec, "while one domain has it", qemu)
		env.unplug(t, first)
		awaitOwner(t, spec, "when none has it", c.after)
	}
}

func wantOwner(t *testing.T, spec hv.DiskSpec, when string, want int) {
	t.Helper()
	if got := ownerOf(t, spec); got != want {
		t.Errorf("read-only %v, shareable %v: owner %s is %d, want %d", spec.ReadOnly, spec.Shareable, when, got, want)
	}
}

// awaitOwner is wantOwner after a disk was removed: libvirt restores the owner after it has removed
// the disk from the XML.
func awaitOwner(t *testing.T, spec hv.DiskSpec, when string, want int) {
	t.Helper()
	_, err := retry.Poll(t.Context(), 20*time.Millisecond, 5*time.Second, func() (bool, error) { return ownerOf(t, spec) == want, nil })
	must(t, err)
	wantOwner(t, spec, when, want)
}

func ownerOf(t *testing.T, spec hv.DiskSpec) int {
	t.Helper()
	info, err := os.Stat(spec.Image.Path)
	must(t, err)
	stat, _ := info.Sys().(*syscall.Stat_t)
	return int(stat.Uid)
}

// unplug removes the disk sda from a domain.
func (e *realEnv) unplug(t *testing.T, id string) {
	t.Helper()
	events := e.conn.Events(t.Context())
	must(t, e.conn.DetachDisk(t.Context(), id, hv.Live, "sda"))
	for {
		d, err := e.conn.Domain(t.Context(), id)
		must(t, err)
		if d.LiveDisk("sda") == nil {
			return
		}
		await(t, events, hv.EventDeviceRemoved)
	}
}
