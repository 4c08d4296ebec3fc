// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// The guest went off in its switch, which is taken back: overlay and destination are compared,
// which may take long.
func TestAFenceDoesNotWaitForTheComparisonOfASwitchThatIsTakenBack(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.world.Inject(hvtest.Fault{Call: "Pivot", Err: hv.ErrUnsupported})
		d.when("name_dst", op.EventUndoStarted, func() { must(t, d.world.Destroy(testInstance)) })
		halted := make(chan struct{})
		d.world.Copier.CompareGate = make(chan struct{}) // the comparison never ends
		d.world.Copier.OnCompare = func() {
			d.world.Copier.OnCompare = nil
			d.world.Registry.Fence()
			d.world.Registry.SetDown(true)
			go func() {
				defer close(halted)
				d.manager().Epoch(d.world.Registry.NewestEpoch(testHost))
				d.runner().Halt()
			}()
		}
		d.completes(mig)
		select {
		case <-halted:
		case <-time.After(time.Minute):
			t.Error("the fence waits for the comparison")
		}
		close(d.world.Copier.CompareGate)
		<-halted
		dom, err := d.world.Fake.Domain(context.Background(), testInstance)
		must(t, err)
		if path := dom.ConfigDisk("vda").Top().Path; path != mig.Dst.Path {
			t.Errorf("the definition names %s before both were compared", path)
		}
		d.world.Registry.SetDown(false)
		d.world.Registry.Rejoin()
		must(t, d.runner().Resume(context.Background()))
		d.rejoined()
		if mig = d.untilItStands(mig.ID); mig.State != api.MigrationNeedsOperator || mig.Error.Code != api.CodeStaleEpoch {
			t.Fatalf("the migration is %s: %v", mig.State, mig.Error)
		}
		d.completes(mig)
		d.endedAs(d.untilItStands(mig.ID), api.MigrationCopied)
	})
}
