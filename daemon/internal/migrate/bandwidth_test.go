// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

func TestTheOperatorsCapHoldsWhenTheDaemonIsStartedAnew(t *testing.T) {
	for _, last := range []int64{500, 0} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			ctx := context.Background()
			capped := mirrorToNewPool
			capped.BandwidthBytesPerSecond = 1000
			mig := d.mirroring(capped)
			for _, bps := range []int64{700, last} {
				_, err := d.manager().Update(ctx, mig.ID, api.MigrationUpdate{BandwidthBytesPerSecond: &bps})
				must(t, err)
			}
			d.Restart()
			pass(time.Second)
			job, err := d.world.Job(ctx, testInstance, "vda")
			must(t, err)
			if got := d.get(mig.ID); job.BandwidthBytesPerSecond != last || got.BandwidthBytesPerSecond != last {
				t.Errorf("the job has a cap of %d and the migration shows %d, want %d", job.BandwidthBytesPerSecond, got.BandwidthBytesPerSecond, last)
			}
			d.world.SetStep(2)
			d.until(mig.ID, api.MigrationCompleted)
			if len(d.world.Copier.Updates) > 0 {
				t.Errorf("changes of copies are left: %v", d.world.Copier.Updates)
			}
		})
	}
}
