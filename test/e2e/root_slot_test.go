// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// Data volumes come while the root is away. Its place is kept: the guest boots from it
// when it is back, and sees it where it was.
func TestRootComesBackToItsPlaceWhateverWasAttachedMeanwhile(t *testing.T) {
	leftToTestE2E(t)
	for _, machine := range []string{"pc", "q35"} {
		t.Run(machine, func(t *testing.T) {
			h := sharedHost(t)
			g := h.defineGuestLike(t, lab.GuestConfig{Machine: machine, UEFI: true, Disks: []lab.Disk{h.bootDisk(t, machine)}})
			g.adopt(t)
			root := g.rootVolume(t)
			before := g.persistentSlots(t)
			h.ctl(t, "volume", "detach", root.name, g.Name)
			var data []*volume
			for range 2 {
				v := h.adoptVolume(t, h.diskIn(t, h.poolA, api.FormatRaw))
				h.ctl(t, "volume", "attach", v.name, g.Name)
				data = append(data, v)
			}
			g.cannotStart(t)
			h.ctl(t, "volume", "attach", root.name, g.Name, "--root")
			after := g.persistentSlots(t)
			if len(after) != 1+len(data) || !slices.Equal(before, after[:1]) {
				t.Errorf("disks of guest %s: the root is not as it was, or not all are there (-before +after):\n%s", g.Name, cmp.Diff(before, after))
			}
			g.bootsFrom(t, machine)
			if diff := cmp.Diff(after, g.persistentSlots(t)); diff != "" {
				t.Errorf("disks of guest %s (-before +after its start):\n%s", g.Name, diff)
			}
			for _, v := range data {
				h.ctl(t, "volume", "detach", v.name, g.Name)
				v.assertUntouched(t)
			}
			g.assertAtRest(t)
			g.settled = true // it has no writer on what it boots from
		})
	}
}
