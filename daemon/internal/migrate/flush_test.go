// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// endByHand brings a migration to its end, call by call: a complete, or a cancel. It
// returns the migration and what was done to the images, in order, before the removal of the
// overlay, and behind the pivot if there was one.
func (d *daemon) endByHand(cancel bool) (mig api.Migration, done []string) {
	d.t.Helper()
	ctx := context.Background()
	pivoted := 0
	d.world.Inject(hvtest.Fault{Call: "Pivot", After: true, Do: func() {
		d.world.Images.Mu.Lock()
		defer d.world.Images.Mu.Unlock()
		pivoted = len(d.world.Images.Durable)
	}})
	if cancel {
		mig = d.begin(toNewPool)
		_, _, err := d.manager().Cancel(ctx, d.call(mig.ID))
		must(d.t, err)
		d.until(mig.ID, api.MigrationCancelled)
	} else {
		mig = d.copied()
		complete := d.call(mig.ID)
		complete.DstAttachmentID = mig.DstAttachmentID
		_, _, err := d.manager().Complete(ctx, complete)
		must(d.t, err)
		d.until(mig.ID, api.MigrationCompleted)
	}
	d.world.Images.Mu.Lock()
	defer d.world.Images.Mu.Unlock()
	log := d.world.Images.Durable
	gone := slices.IndexFunc(log, func(s string) bool { return strings.HasPrefix(s, "remove /overlays/") })
	if gone < pivoted {
		d.t.Fatalf("%v: the overlay was not removed, or before the pivot (%d)", log, pivoted)
	}
	return mig, slices.Clone(log[pivoted:gone])
}

// A guest with cache='unsafe' has its flushes left out: nothing of which the end of a
// fold is a copy goes before the end was flushed from here. A flush before the pivot, which only shortens the
// pause, has not what was written since.
func TestTheEndIsFlushedBetweenThePivotAndTheRemovalOfTheOverlay(t *testing.T) {
	for _, back := range []bool{false, true} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			mig, done := d.endByHand(back)
			end := mig.Dst.Path
			if back {
				end = srcPath
			}
			if !slices.Contains(d.world.Calls(), "Pivot") {
				t.Fatal("there was no pivot")
			}
			if !slices.Contains(done, "flush "+end) {
				t.Errorf("back %t: %v, want a flush of %s between the pivot and the removal of the overlay", back, done, end)
			}
		})
	}
}

// Linux tells of what it could not write once: a flush that only shortens the pause must not hide it.
func TestAnEndThatCannotStoreWhatTheFoldWroteIsSaidBeforeTheGuestIsPaused(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.world.Images.FlushFails = func(path string) error {
			if path != mig.Dst.Path {
				return nil
			}
			return &fs.PathError{Op: "sync", Path: path, Err: syscall.EIO}
		}
		complete := d.call(mig.ID)
		complete.DstAttachmentID = mig.DstAttachmentID
		_, _, err := d.manager().Complete(context.Background(), complete)
		must(t, err)
		d.until(mig.ID, api.MigrationCompleting)
		now := d.until(mig.ID, api.MigrationCopied)
		if now.Error == nil || now.Error.Code != api.CodeIOError {
			t.Errorf("the error is %v", now.Error)
		}
		if calls := d.world.Calls(); slices.Contains(calls, "Pivot") || slices.Contains(calls, "Suspend") {
			t.Errorf("%v", calls)
		}
		d.ends(now, false)
	})
}
