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

// parked brings a complete of a running guest to where it waits for the
// operator, because somebody has named another image in the persistent XML, and
// returns what sets that right again.
func parked(t *testing.T, d *daemon) (m api.Migration, mend func()) {
	t.Helper()
	ctx := context.Background()
	m = d.begin(toNewPool)
	_, _, err := d.manager().Copy(ctx, d.call(m.ID))
	must(t, err)
	d.until(m.ID, api.MigrationCopied)
	other := []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/old/other.raw"}}
	must(t, d.world.CreateImage("/old/other.raw", hvtest.Raw, testSize))
	d.world.Inject(hvtest.Fault{Call: "Pivot", Err: hv.ErrUnsupported, Do: func() {
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", other))
	}})
	_, _, err = d.manager().Complete(ctx, Call{OpID: uuid.NewString(), Subject: m.ID, DstAttachmentID: m.DstAttachmentID})
	must(t, err)
	d.until(m.ID, api.MigrationNeedsOperator)
	dst := []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: m.Dst.Path}}
	return m, func() { must(t, d.world.SetConfigChain(ctx, testInstance, "vda", dst)) }
}

func TestWhatNeedsAnOperatorGoesOnWhenCalledAgain(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		m, mend := parked(t, d)
		mend()
		// It was being undone when it had to stop; that comes first.
		for _, want := range []api.MigrationState{api.MigrationCopied, api.MigrationCompleted} {
			_, _, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: m.ID, DstAttachmentID: m.DstAttachmentID})
			must(t, err)
			d.until(m.ID, want)
		}
		got, err := d.manager().Get(context.Background(), m.ID)
		must(t, err)
		d.moved(got)
	})
}

func TestWhatNeedsAnOperatorCanBeCancelled(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		m, mend := parked(t, d)
		mend()
		_, _, err := d.manager().Cancel(context.Background(), d.call(m.ID))
		must(t, err)
		d.until(m.ID, api.MigrationCancelled)
		d.stayed()
	})
}

func TestCallingAgainTooSoonChangesNothing(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		m, _ := parked(t, d)
		_, id, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: m.ID, DstAttachmentID: m.DstAttachmentID})
		must(t, err)
		_, err = d.runner.Wait(context.Background(), id)
		must(t, err)
		d.until(m.ID, api.MigrationNeedsOperator)
		_, _, err = d.manager().Copy(context.Background(), d.call(m.ID))
		if api.CodeOf(err) != api.CodeNeedsOperator {
			t.Errorf("copy of what needs an operator: %v, want needs_operator", err)
		}
	})
}
