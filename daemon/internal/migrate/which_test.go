// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// The volume was moved on by another host. What this host's journal says of it
// is old, and nobody is to take it for the data.
func TestWhichDoesNotTakeAnOldMoveForTheTruth(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.until(d.migrate(), api.MigrationCompleted)
		vol := d.world.Registry.CurrentVolume()
		vol.Attachments, vol.Location.Path = nil, "/shared/vol.raw"
		w, err := d.manager().Which(context.Background(), vol)
		must(t, err)
		if w.Agree || w.Authoritative != nil {
			t.Errorf("agree %v, authoritative %v, want neither", w.Agree, w.Authoritative)
		}
	})
}

// A reserved attachment is a word of the registry: no instance has a disk of it,
// and the one that has the disk says where the volume is, in any order.
func TestWhichAsksTheInstanceThatHasTheDisk(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		vol := d.world.Registry.CurrentVolume()
		reserved := api.Attachment{ID: "reserved", VolumeID: vol.ID, InstanceID: "another", DiskAttachment: api.DiskAttachment{Device: "vdz"}, State: api.AttachmentReserved}
		holder := vol.Attachments
		vol.Attachments = append([]api.Attachment{reserved}, holder...)
		w, err := d.manager().Which(context.Background(), vol)
		must(t, err)
		if !w.Agree || w.Live == nil {
			t.Errorf("agree %v with %v, want the instance that has it asked", w.Agree, w.Live)
		}
		for _, state := range []api.AttachmentState{api.AttachmentReserved, api.AttachmentAttaching, api.AttachmentDetaching} {
			reserved.State = state
			vol.Attachments = []api.Attachment{reserved}
			if w, err = d.manager().Which(context.Background(), vol); err != nil || !w.Agree {
				t.Errorf("%s alone: agree %v (%s), %v", state, w.Agree, w.Explanation, err)
			}
		}
	})
}

// The instance is on the shelf and on no host: nothing has the image open, and it is
// where the registry says.
func TestWhichOfAVolumeOnTheShelfNamesItsImage(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		vol := shelved(d.world.Registry.CurrentVolume())
		w, err := d.manager().Which(context.Background(), vol)
		must(t, err)
		if !w.Agree || len(w.Authoritative) != 1 || w.Authoritative[0].Path != vol.Location.Path || !strings.Contains(w.Explanation, "shelved_offloaded") {
			t.Errorf("agree %v, authoritative %v (%s), want the image of the registry", w.Agree, w.Authoritative, w.Explanation)
		}
		d.until(d.migrate(), api.MigrationCompleted)
		if w, err = d.manager().Which(context.Background(), vol); err != nil || w.Agree || w.Authoritative != nil {
			t.Errorf("moved here since: agree %v, authoritative %v, %v, want neither", w.Agree, w.Authoritative, err)
		}
	})
}

// shelved is a volume whose instance is on no host, where no domain is either.
func shelved(vol api.Volume) api.Volume {
	vol.Attachments = slices.Clone(vol.Attachments)
	vol.Attachments[0].Host, vol.Attachments[0].InstanceID = "", "00000000-0000-4000-8000-00000000cafe"
	return vol
}

// The instance is on another host that sees the image: what this one has is not
// that instance's disk, and says nothing about it.
func TestWhichNamesTheHostOfAnInstanceThatIsElsewhere(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		vol := shelved(d.world.Registry.CurrentVolume())
		vol.Attachments[0].Host = "elsewhere"
		w, err := d.manager().Which(context.Background(), vol)
		must(t, err)
		if w.Agree || w.Authoritative != nil || !strings.Contains(w.Explanation, "is on host elsewhere") {
			t.Errorf("agree %v, authoritative %v (%s), want the host that can say", w.Agree, w.Authoritative, w.Explanation)
		}
	})
}
