// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
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
				_, err := d.manager().SetBandwidth(ctx, mig.ID, bps)
				must(t, err)
			}
			d.restart()
			pass(time.Second)
			job, err := d.world.Job(ctx, testInstance, "vda")
			must(t, err)
			if got := d.get(mig.ID); job.BandwidthBps != last || got.BandwidthBytesPerSecond != last {
				t.Errorf("the job has a cap of %d and the migration shows %d, want %d", job.BandwidthBps, got.BandwidthBytesPerSecond, last)
			}
			d.world.SetStep(2)
			d.until(mig.ID, api.MigrationCompleted)
			if len(d.world.copier.caps) > 0 {
				t.Errorf("caps are left: %v", d.world.copier.caps)
			}
		})
	}
}

func TestTheCapOfACopyIsKeptInAFileUntilItIsForgotten(t *testing.T) {
	dir := t.TempDir()
	wantCap := func(want int64, wantSet bool) {
		t.Helper()
		bps, set, err := NewCopier(dir, slog.New(slog.DiscardHandler)).Cap("copy/m")
		if err != nil || bps != want || set != wantSet {
			t.Errorf("the cap is %d, set %t (%v); want %d, %t", bps, set, err, want, wantSet)
		}
	}
	wantCap(0, false)
	c := NewCopier(dir, slog.New(slog.DiscardHandler))
	for _, bps := range []int64{1 << 40, 0} {
		must(t, c.SetCap("copy/m", bps))
		wantCap(bps, true)
	}
	must(t, c.Forget(t.Context(), "copy/m"))
	wantCap(0, false)
}
