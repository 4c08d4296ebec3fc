// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// The host is fenced while the guest is paused for a switch, and the registry is unavailable for
// days: the guest does not wait for it, whether or not the daemon dies of that.
func TestAFenceLeavesNoGuestPaused(t *testing.T) {
	for _, dies := range []bool{false, true} {
		for _, target := range []api.MigrationTarget{toNewPool, mirrorToNewPool} {
			for _, at := range []string{"pause", "drain", "name_dst", "pivot", "resume"} {
				name := at + " " + target.Method
				if dies {
					name += " daemon dies"
				}
				t.Run(name, func(t *testing.T) {
					inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) { d.fencedInThePause(at, target, dies) })
				})
			}
		}
	}
}

func (d *daemon) fencedInThePause(at string, target api.MigrationTarget, dies bool) {
	d.t.Helper()
	quiet := make(chan struct{})
	d.journal.AfterAppend(func(r op.Record) {
		if r.Step != at || r.Kind != op.EventStarted {
			return
		}
		d.journal.AfterAppend(nil)
		d.world.Registry.Fence()
		d.world.Registry.SetDown(true)
		go func() {
			defer close(quiet)
			if dies {
				d.Halt()
				return
			}
			d.manager().Epoch(d.world.Registry.NewestEpoch(testHost))
			d.runner().Halt()
		}()
		synctest.Wait()
	})
	id := d.migrateTo(target)
	<-quiet
	if dies {
		d.Boot(halted)
		d.manager().Epoch(d.world.Registry.NewestEpoch(testHost))
		pass(moveTimeout)
	}
	dom, err := d.world.Fake.Domain(context.Background(), testInstance)
	must(d.t, err)
	if dom.State != hv.StateRunning {
		d.t.Errorf("a host that was fenced at %s has left the guest %s", at, dom.State)
	}
	d.world.Registry.SetDown(false)
	d.runner().Halt()
	d.world.Registry.Rejoin()
	must(d.t, d.runner().Resume(context.Background()))
	d.rejoined()
	d.moved(d.until(id, api.MigrationCompleted))
}
