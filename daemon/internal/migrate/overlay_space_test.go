// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// The overlay of an open migration may grow until it is as large as its volume.
func TestAStartCountsWhatTheOverlaysOfOthersMayStillTake(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		next := &move.Spec{MigrationID: uuid.NewString(), VolumeName: "next", Src: api.Location{SizeBytes: testSize}}
		m := d.manager()
		m.cfg.OverlayMinFreeBytes = 1 << 40
		has, err := d.world.Images.AllocatedBytes(overlayOf(mig))
		must(t, err)
		need := 2*m.Preflight.OverlayRoom(next) - has
		d.world.Images.Free.Store(need - 1)
		if err := m.Preflight.CheckOverlaySpace(context.Background(), next); api.CodeOf(err) != api.CodeNoSpace {
			t.Errorf("with a byte too few: %v, want no_space", err)
		}
		d.world.Images.Free.Store(need)
		must(t, m.Preflight.CheckOverlaySpace(context.Background(), next))
		d.copyAndCancel(mig.ID)
		d.until(mig.ID, api.MigrationCancelled)
		d.world.Images.Free.Store(m.Preflight.OverlayRoom(next))
		must(t, m.Preflight.CheckOverlaySpace(context.Background(), next))
	})
}
