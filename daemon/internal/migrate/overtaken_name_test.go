// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// The guest gets another process between the last look of a step and its change of the definition,
// and the daemon dies right after the change: that process writes only to the overlay, while the
// definition names dst.
func TestAGuestThatWroteToItsOverlayWhileItsDefinitionNamedDstKeepsBoth(t *testing.T) {
	for _, written := range []bool{true, false} {
		for _, startedOnDst := range []bool{true, false} {
			t.Run(fmt.Sprintf("written %t, started on dst %t", written, startedOnDst), func(t *testing.T) {
				inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
					mig := d.copied()
					d.world.Inject(hvtest.Fault{Call: "SetConfigChain", Do: func() {
						if !written {
							d.world.SetQuiet()
						}
						must(t, d.world.Crash(testInstance))
						must(t, d.world.Start(testInstance))
					}})
					d.world.Inject(hvtest.Fault{Call: "SetConfigChain", After: true, Do: func() {
						d.diesWhile(func() {
							for range 5 {
								d.world.GuestWrites()
							}
							d.world.SetQuiet()
							must(t, d.world.Crash(testInstance))
							if startedOnDst {
								must(t, d.world.Start(testInstance))
							}
						})
					}})
					d.completes(mig)
					if !written {
						d.moved(d.until(mig.ID, api.MigrationCompleted))
						return
					}
					for range 2 {
						d.until(mig.ID, api.MigrationNeedsOperator)
						d.completes(mig)
						calm(d)
					}
					mig = d.until(mig.ID, api.MigrationNeedsOperator)
					if !d.world.Exists(overlayOf(mig)) || !d.world.Exists(mig.Dst.Path) {
						t.Errorf("the overlay is there: %t, and dst: %t", d.world.Exists(overlayOf(mig)), d.world.Exists(mig.Dst.Path))
					}
					if startedOnDst {
						must(t, d.world.Stop(testInstance))
					} else if len(d.world.Guards.Guarded()) == 0 {
						t.Error("the instance may be started")
					}
					if err := d.manager().Monitor.NameStanding(context.Background(), testInstance); api.CodeOf(err) != api.CodeChainChanged {
						t.Errorf("the definition was named after one of the two: %v", err)
					}
					// These are the steps of docs/how-to/recover.md, if the overlay is right.
					for block, value := range expect.Value(d.world.ReadImage(overlayOf(mig)))(t) {
						must(t, d.world.WriteBlock(mig.Dst.Path, block, value))
					}
					d.completes(mig)
					d.moved(d.until(mig.ID, api.MigrationCompleted))
				})
			})
		}
	}
}
