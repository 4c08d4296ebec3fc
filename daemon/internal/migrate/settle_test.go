// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// The images are opened again right after libvirt and the kernel have agreed about the guest's
// disk.
func TestAMoveEndsOnlyOnceTheGuestHasClosedTheImagesThatItHasLeft(t *testing.T) {
	src := func(path string) bool { return path == srcPath }
	overlay := func(path string) bool { return path != srcPath }
	for name, tc := range map[string]struct {
		cancel bool
		open   func(path string) bool
	}{
		"src, at a complete":         {false, src},
		"the overlay, at a complete": {false, overlay},
		"the overlay, at a cancel":   {true, overlay},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				hold := func(open func(string) bool) {
					d.world.Mu.Lock()
					defer d.world.Mu.Unlock()
					d.world.Reopened = open
				}
				mig := d.begin(toNewPool)
				_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCopied)
				d.when("settle", op.EventStarted, func() {
					d.world.Inject(hvtest.Fault{Call: "SetConfigChain", After: true, Do: func() { hold(tc.open) }})
				})
				end, state := d.completes, api.MigrationCompleted
				if tc.cancel {
					end, state = func(mig api.Migration) string { return d.cancels(mig.ID) }, api.MigrationCancelled
				}
				end(mig)
				pass(2 * time.Second)
				synctest.Wait()
				if !slices.ContainsFunc(d.runner().Active(), func(st op.Status) bool { return st.Step == "settle" && !st.State.Final() }) {
					t.Error("the move went on while the guest had the image open")
				}
				hold(nil)
				d.until(mig.ID, state)
			})
		})
	}
}
