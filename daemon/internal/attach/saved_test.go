// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// A guest saved while another of its volumes moves gets its disks back at its restore, even a disk
// that another instance has got since: the registry does not answer, so it cannot report the
// instance's lock.
func TestNoVolumeOfASavedInstanceIsDetachedWhileTheRegistryIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		w.known[testAtt] = w.registry.rows[testAtt]
		must(t, w.Destroy(web))
		must(t, w.guards.Set(web, guard.OwnerPause+"m", "it is saved"))
		w.registry.SetDown(true)
		if _, err := d.detach("detach", web); api.CodeOf(err) != api.CodeInstanceBusy {
			t.Errorf("detach: %v, want instance_busy", err)
		}
		if _, config := d.disks(t, web); config == nil {
			t.Error("the definition has lost the disk")
		}
		must(t, w.guards.Clear(web, guard.OwnerPause+"m"))
		if _, err := d.detach("detach.2", web); err != nil {
			t.Error(err)
		}
		if _, config := d.disks(t, web); config != nil {
			t.Error("the definition has the disk")
		}
		registryAwayFor(d, 0)
		pass(time.Minute)
	}, hv.StateRunning)
}

// A guest that is off is started with the present definition, and saved before any read.
func TestTheGuestIsStartedAndSavedAtEveryCallAndRestored(t *testing.T) {
	everyCall(t, []hv.State{hv.StateStopped, hv.StateRunning}, func(d *daemon) hosttest.Happening {
		return hosttest.Happening{Do: func() {
			_ = d.world.Destroy(web)
			_ = d.world.Start(web)
			if d.world.Save(web) == nil {
				time.AfterFunc(time.Minute, func() { _ = d.world.Start(web) })
			}
		}}
	})
}
