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
