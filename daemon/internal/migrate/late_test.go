// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// late makes the next call of this name lose its answer and take effect only after a while, with
// the guest's process occupied until then.
func (d *daemon) late(call string, after time.Duration, effect func(ctx context.Context) error) {
	d.world.Inject(hvtest.Fault{Call: call, Err: hv.ErrUnavailable, Do: func() {
		must(d.t, d.world.SetOccupied(testInstance, true))
		time.AfterFunc(after, func() {
			if err := effect(context.Background()); err != nil {
				d.t.Errorf("the late %s: %v", call, err)
			}
			_ = d.world.SetOccupied(testInstance, false)
		})
	}})
}

// The flush of src may take longer than the connection lasts.
func TestASnapshotThatLandsLateIsWaitedFor(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		var id string
		d.late("Snapshot", 10*time.Minute, func(ctx context.Context) error {
			return d.world.Fake.PutOverlay(ctx, testInstance, "vda", hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: "/overlays/" + id + ".qcow2"})
		})
		id = d.migrate()
		d.moved(d.until(id, api.MigrationCompleted))
	})
}

func TestASuspendThatLandsLateLeavesNobodyPaused(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.late("Suspend", 20*time.Minute, func(ctx context.Context) error { return d.world.Fake.Suspend(ctx, testInstance) })
		d.completes(mig)
		pass(time.Minute)
		go func() { _, _, _ = d.manager().Cancel(context.Background(), d.call(mig.ID)) }()
		d.until(mig.ID, api.MigrationCancelled, api.MigrationCompleted)
		calm(d)
		r := &hosttest.Recorder{}
		d.world.AssertClean(r)
		d.world.AssertNoWriteLost(r)
		for _, err := range r.Problems {
			t.Error(err)
		}
	})
}

// A snapshot was in libvirt's queue before its undo changed the definition: the next boot must find
// the guest's later writes.
func TestASnapshotThatLandsBehindItsUndoKeepsTheOverlayInTheDefinition(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := new(api.Migration)
		d.world.Inject(hvtest.Fault{Call: "Snapshot", Err: hv.ErrUnsupported})
		d.world.Inject(hvtest.Fault{Call: "SetConfigChain", Nth: 2, After: true, Do: func() {
			all, err := d.manager().List(context.Background(), true)
			must(t, err)
			*mig = all[0]
			must(t, d.world.Fake.PutOverlay(context.Background(), testInstance, "vda", hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: overlayOf(all[0])}))
			must(t, d.world.Fake.SetConfigChain(context.Background(), testInstance, "vda", []hv.Image{rawImage(srcPath)})) // as the undo had it
		}})
		id := d.migrate()
		d.until(id, api.MigrationNeedsOperator)
		for range 10 {
			d.world.GuestWrites()
		}
		must(t, d.world.Destroy(testInstance))
		must(t, d.world.Start(testInstance))
		r := &hosttest.Recorder{}
		d.world.AssertNoWriteLost(r)
		for _, err := range r.Problems {
			t.Error(err)
		}
		if !d.world.Exists(overlayOf(*mig)) {
			t.Error("the overlay is gone")
		}
	})
}

// If the guest has ended since the look, libvirt makes the snapshot only in the definition, and
// omits the chain below the overlay there.
func TestAGuestThatEndsInTheCallOfItsSnapshotIsOnTheOverlay(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Inject(hvtest.Fault{Call: "Snapshot", Do: func() {
			named := d.definition()
			must(t, d.world.Destroy(testInstance))
			d.world.Redefine(t, func(dom *hv.Domain) { dom.Config[0].Chain, dom.Config[0].Terminated = named[:1], false })
		}})
		d.moved(d.until(d.migrate(), api.MigrationCompleted))
	})
}
