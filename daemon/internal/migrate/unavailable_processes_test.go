// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// unavailable makes a call fail for some minutes from now on, as while the program that looks at
// processes is unavailable.
func (d *daemon) unavailable(call string, asked *int) {
	until := time.Now().Add(5 * time.Minute)
	var fail func()
	fail = func() {
		d.world.Inject(hvtest.Fault{Call: call, Err: &hv.NotAskedError{Err: errors.New("no answer")}, Do: func() {
			*asked++
			if time.Now().Before(until) {
				fail()
			}
		}})
	}
	fail()
}

// untilItWaits returns once an op reports in one of its steps that it waits for another program.
func (d *daemon) untilItWaits(step, on string) {
	d.t.Helper()
	for began := time.Now(); time.Since(began) < moveTimeout; pass(50 * time.Millisecond) {
		synctest.Wait()
		if slices.ContainsFunc(d.runner().Active(), func(st op.Status) bool { return st.Step == step && st.Waiting == on }) {
			return
		}
	}
	d.t.Fatalf("no op says in step %s that it waits for %q", step, on)
}

// Repetition is not enough: the operator must see what the move waits for.
func TestAMoveWaitsWhileNobodyCanLookAtProcesses(t *testing.T) {
	for name, tc := range map[string]struct {
		call string
		step string   // the step that waits
		from []string // calls in a row; after the last the other one begins to fail
	}{
		"before the switch":          {"Process", "switch_to_overlay", nil},
		"after the switch":           {"OpenFiles", "verify_frozen", []string{"Snapshot", "SetConfigChain"}},
		"after the guest is resumed": {"OpenFiles", "settle", []string{"Snapshot", "Pivot", "Resume", "SetConfigChain", "OpenFiles"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				asked := 0
				begin := func() { d.unavailable(tc.call, &asked) }
				for i := len(tc.from) - 1; i >= 0; i-- {
					next := begin
					begin = func() { d.world.Inject(hvtest.Fault{Call: tc.from[i], After: true, Do: next}) }
				}
				begin()
				id := d.migrate()
				d.untilItWaits(tc.step, request.WaitProcesses)
				mig := d.until(id, api.MigrationCompleted)
				calm(d)
				d.moved(mig)
				if asked < 2 {
					t.Errorf("the call failed %d times, which proves nothing", asked)
				}
			})
		})
	}
}
