// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// unavailable has a call fail for some minutes from now on, as while the program that looks at processes is away.
func (d *daemon) unavailable(call string, asked *int) {
	until := time.Now().Add(5 * time.Minute)
	var fail func()
	fail = func() {
		d.world.Inject(hvtest.Fault{Call: call, Err: hv.ErrUnavailable, Do: func() {
			*asked++
			if time.Now().Before(until) {
				fail()
			}
		}})
	}
	fail()
}

func TestAMoveWaitsWhileNobodyCanLookAtProcesses(t *testing.T) {
	for name, tc := range map[string]struct {
		call string
		from []string // calls after each other, at whose last the other one begins to fail
	}{
		"before the switch":          {"Process", nil},
		"after the switch":           {"OpenFiles", []string{"Snapshot", "SetConfigChain"}},
		"after the guest is resumed": {"OpenFiles", []string{"Snapshot", "Pivot", "Resume", "SetConfigChain"}},
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
				mig := d.until(d.migrate(), api.MigrationCompleted)
				calm(d)
				d.moved(mig)
				if asked < 2 {
					t.Errorf("the call failed %d times, which proves nothing", asked)
				}
			})
		})
	}
}
