// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// The volume was moved on by another host. What this host's journal says of it
// is old, and nobody is to take it for the data.
func TestWhichDoesNotTakeAnOldMoveForTheTruth(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.until(d.migrate(), api.MigrationCompleted)
		vol := d.world.registry.volume()
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
		vol := d.world.registry.volume()
		reserved := api.Attachment{ID: "reserved", VolumeID: vol.ID, InstanceID: "another", Device: "vdz", State: api.AttachmentReserved}
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
