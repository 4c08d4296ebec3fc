// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// parked brings a complete to a standstill, because the guest died in the switch and another image
// was put into the definition. It also returns a function that puts the right image back.
func parked(t *testing.T, d *daemon) (mig api.Migration, name func(chain ...hv.Image)) {
	t.Helper()
	ctx := context.Background()
	mig = d.copied()
	must(t, d.world.CreateImage("/old/other.raw", hvtest.Raw, testSize))
	name = func(chain ...hv.Image) {
		t.Helper()
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", chain))
	}
	d.world.Inject(hvtest.Fault{Call: "Pivot", Err: hv.ErrUnsupported, Do: func() {
		must(t, d.world.Destroy(testInstance))
		name(rawImage("/old/other.raw"))
	}})
	_, _, err := d.manager().Complete(ctx, Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
	must(t, err)
	d.until(mig.ID, api.MigrationNeedsOperator)
	return mig, name
}

func rawImage(path string) hv.Image {
	return hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}
}

func TestWhatNeedsAnOperatorGoesOnWhenCalledAgain(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig, name := parked(t, d)
		name(rawImage(mig.Dst.Path))
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

func TestWhatNeedsAnOperatorCanBeCancelled(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig, name := parked(t, d)
		name(hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: overlayOf(mig)}, rawImage(srcPath))
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

func TestCallingAgainTooSoonChangesNothing(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig, _ := parked(t, d)
		_, id, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		must(t, err)
		_, err = d.runner().Wait(context.Background(), id)
		must(t, err)
		d.until(mig.ID, api.MigrationNeedsOperator)
		_, _, err = d.manager().Copy(context.Background(), d.call(mig.ID))
		if api.CodeOf(err) != api.CodeNeedsOperator {
			t.Errorf("copy of what needs an operator: %v, want needs_operator", err)
		}
	})
}
