// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// After a libvirtd has died inside a call, the next one reads the old status, and reports the old
// disks until the guest's process ends. The volume is not released while the process has it; after
// a stop and start of the guest, a repeated request succeeds.
func TestLibvirtdDiesInsideACallAndShowsTheOldDisksForEver(t *testing.T) {
	for goal := range goals {
		if goals[goal].root {
			continue // an instance that is off has no stale disks
		}
		for _, state := range []hv.State{hv.StateRunning, hv.StatePaused} {
			for _, call := range []string{"AttachDisk", "DetachDisk"} {
				for n := 1; n <= 3; n++ { // of the definition, of the process, and of the undo
					for where, image := range map[string]bool{"": false, " at an RBD image": true} {
						t.Run(fmt.Sprintf("%s %s %s %d%s", goal, state, call, n, where), func(t *testing.T) {
							synctest.Test(t, func(t *testing.T) { simulateStaleLibvirt(t, state, image, goal, call, n) })
						})
					}
				}
			}
		}
	}
}

func simulateStaleLibvirt(t *testing.T, state hv.State, image bool, goal, call string, n int) {
	t.Helper()
	kind := goals[goal].kind
	w := newWorld(t, state)
	if image {
		w.atImage(t)
	}
	if kind == kindDetach {
		w.attached(t, testAtt, web)
	}
	goals[goal].spoil(w)
	d := startDaemon(t, w)
	synctest.Wait()
	w.DieInside(web, call, n, func() { awayFor(d, time.Second) })
	for range 4 {
		askOnce(d, kind)
		pass(15 * time.Minute)
		synctest.Wait()
		neverFreeWhileOpen(t, w)
		if _, runner := d.Now(); len(runner.Active()) == 0 {
			break
		}
		_ = w.Destroy(web)
		must(t, w.Start(web))
		pass(time.Minute)
	}
	_ = w.Destroy(web) // end the stale state, so that the rest must be right
	must(t, w.Start(web))
	calm(t, d)
	if err := w.settled(); err != nil {
		t.Errorf("%v; the registry was told %v", err, w.registry.changes)
	}
}

// askOnce makes one request, and does not await an op that waits for the operator.
func askOnce(d *daemon, kind string) {
	g, _ := d.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	id := fmt.Sprintf("%s-%d", testOp, time.Now().UnixNano())
	if kind == kindAttach {
		_, _ = g.Attach(ctx, id, "vol", api.VolumeAttach{Instance: "web"})
	} else {
		_, _ = g.Detach(ctx, id, "vol", api.VolumeDetach{Instance: "web"})
	}
}

// neverFreeWhileOpen fails the test if a process has the volume open without an attachment in the
// registry.
func neverFreeWhileOpen(t *testing.T, w *world) {
	t.Helper()
	files, err := w.OpenFiles(context.Background(), web, w.registry.vol.Location.Path)
	if err != nil || len(files) == 0 {
		return
	}
	if !slices.ContainsFunc(w.registry.all(), func(a api.Attachment) bool { return a.InstanceID == web }) {
		t.Error("the guest's process has the volume open, and the registry has given it back")
	}
}
