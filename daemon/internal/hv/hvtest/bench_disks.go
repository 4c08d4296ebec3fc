// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func (b *bench) spec(t *testing.T, target string) hv.DiskSpec {
	t.Helper()
	return hv.DiskSpec{
		Target: target, Bus: "virtio", Serial: "serial-of-" + target, Image: b.image(t, target+".raw", Raw),
	}
}

func (b *bench) attach(t *testing.T, id string, where hv.Where, spec hv.DiskSpec) {
	t.Helper()
	ok(t, b.hv.AttachDisk(t.Context(), id, where, spec))
}

func (b *bench) definition(t *testing.T, id string, where hv.Where, target string) string {
	t.Helper()
	definition, err := b.hv.DiskDefinition(t.Context(), id, where, target)
	ok(t, err)
	return definition
}

func (g *guest) ask(t *testing.T, target string) {
	t.Helper()
	for range 2 {
		ok(t, g.hv.DetachDisk(t.Context(), g.id, hv.Live, target))
		if g.domain(t).LiveDisk(target) == nil {
			t.Fatal("the disk is gone and the guest has not answered")
		}
	}
}

func (g *guest) awaitGone(t *testing.T, target string) {
	t.Helper()
	eventually(t, "the disk is gone", func() bool { return g.domain(t).LiveDisk(target) == nil })
}

func (g *guest) unplug(t *testing.T, target string) {
	t.Helper()
	if g.domain(t).LiveDisk(target) == nil {
		return
	}
	ok(t, g.hv.DetachDisk(t.Context(), g.id, hv.Live, target))
	g.LetGo(t, g.id, target)
	g.awaitGone(t, target)
}
