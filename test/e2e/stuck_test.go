// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/beevik/etree"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/volferry/volferry/internal/api"
)

// withoutSystem takes the guest's kernel away, so that it stays in its firmware
// for ever and never answers anything.
func (g *guest) withoutSystem(t *testing.T) {
	t.Helper()
	doc := etree.NewDocument()
	if err := doc.ReadFromString(g.host.virsh(t, "dumpxml", g.Name, "--inactive")); err != nil {
		t.Fatal(err)
	}
	system := doc.FindElement("/domain/os")
	for _, name := range []string{"kernel", "initrd", "cmdline"} {
		system.RemoveChild(system.SelectElement(name))
	}
	file := filepath.Join(g.host.Libvirtd.Dir, g.Name+".xml")
	text, err := doc.WriteToBytes()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	g.host.virsh(t, "define", file)
}

func TestGuestThatDoesNotLetGoKeepsItsVolume(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	deaf, asleep := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw)), h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	deaf.withoutSystem(t)
	both := []*plugged{
		deaf.attach(t, h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))),
		asleep.attach(t, h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))),
	}
	if err := deaf.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	both[1].writes(t)
	asleep.pause(t)
	running := deaf.pid(t)

	t.Run("everything is as before", func(t *testing.T) {
		var before []api.Volume
		var given []<-chan error
		for _, p := range both {
			before = append(before, p.show(t))
			given = append(given, p.guest.inBackground(t, "-o", "json", "--progress", "none", "volume", "detach", p.name, p.guest.Name))
		}
		for i, p := range both {
			mustHaveFailed(t, <-given[i], api.ExitOpFailed, api.CodeInstanceBusy)
			wasDetaching := cmp.Options{cmpopts.IgnoreFields(api.Attachment{}, "UpdatedAt"), cmpopts.IgnoreFields(api.Volume{}, "UpdatedAt")}
			if diff := cmp.Diff(before[i], p.show(t), wasDetaching); diff != "" {
				t.Errorf("the volume changed (-before +after):\n%s", diff)
			}
			p.assertAttached(t)
		}
	})
	t.Run("what would lose the disk is refused", func(t *testing.T) {
		for _, method := range []string{"overlay", "mirror"} {
			e := h.refuses(t, api.CodeInstanceBusy, "volume", "migrate", both[0].name, "--to-pool", "b", "--method", method)
			mustContain(t, e.Message, deaf.Name, "detach")
		}
		both[0].assertAttached(t)
	})
	t.Run("what it lets go of too late it gets back", func(t *testing.T) {
		h.virsh(t, "reset", deaf.Name) // QEMU does now what it was asked for
		eventually(t, "the disk left the guest and came back", func() bool {
			return h.logged(t, "let go of a disk after that was given up") > 0 && cmp.Diff(h.slotsOf(t, deaf.Name), h.slotsOf(t, deaf.Name, "--inactive")) == ""
		})
		if deaf.pid(t) != running {
			t.Error("the guest's process ended")
		}
		both[0].assertAttached(t)
	})
	t.Run("later it goes", func(t *testing.T) {
		deaf.destroy(t)
		both[0].detach(t)
		both[0].assertUntouched(t)
		asleep.resume(t)
		both[1].writes(t)
		both[1].quiesce(t)
		both[1].detach(t)
		both[1].assertHolds(t)
	})
	deaf.assertSettled(t)
	asleep.assertSettled(t)
}
