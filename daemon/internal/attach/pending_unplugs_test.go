// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

func TestAPendingUnplugOutlivesALaterDetachThatDidNotAsk(t *testing.T) {
	for name, between := range map[string]func(*daemon){
		"without a restart":         func(*daemon) {},
		"with a restart at the end": (*daemon).Restart,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				w := d.world
				w.attached(t, testAtt, web)
				must(t, w.SetUnplug(web, hvtest.UnplugWaits))
				wantCode(t, failed(d.detach("asks", web)), api.CodeInstanceBusy)
				must(t, w.SuspendByUser(web))
				wantCode(t, failed(d.detach("does not ask a paused guest", web)), api.CodeInstanceBusy)
				must(t, w.ResumeByUser(web))
				between(d)
				wantCode(t, w.unplugs.MayMove(context.Background(), testVolume), api.CodeInstanceBusy)
			}, hv.StateRunning)
		})
	}
}

// A guest restored from a managed save has the earlier requests, in another process.
func TestAPendingUnplugSurvivesASaveAndARestoreWithoutTheDaemon(t *testing.T) {
	for name, happen := range map[string]func(t *testing.T, d *daemon){
		"both while it is down": func(t *testing.T, d *daemon) {
			t.Helper()
			d.RestartAfter(func() {
				must(t, d.world.Save(web))
				must(t, d.world.Start(web))
			})
		},
		"the save before, the restore while it is down": func(t *testing.T, d *daemon) {
			t.Helper()
			must(t, d.world.Save(web))
			pass(restoreEvery)
			d.RestartAfter(func() { must(t, d.world.Start(web)) })
		},
		"and resumed since": func(t *testing.T, d *daemon) {
			t.Helper()
			d.RestartAfter(func() {
				must(t, d.world.Save(web))
				must(t, d.world.Start(web))
				must(t, d.world.SuspendByUser(web))
				must(t, d.world.ResumeByUser(web))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				w := d.world
				w.attached(t, testAtt, web)
				must(t, w.SetUnplug(web, hvtest.UnplugWaits))
				wantCode(t, failed(d.detach("asks", web)), api.CodeInstanceBusy)
				happen(t, d)
				wantCode(t, w.unplugs.MayMove(context.Background(), testVolume), api.CodeInstanceBusy)
				d.Restart()
				wantCode(t, w.unplugs.MayMove(context.Background(), testVolume), api.CodeInstanceBusy)
				must(t, w.Destroy(web))
				must(t, w.Start(web)) // the requests ended with the process
				must(t, w.unplugs.MayMove(context.Background(), testVolume))
			}, hv.StateRunning)
		})
	}
}

// A guest that was booted since has no request. A daemon that saw the boot remembers it, because a
// pause of the guest hides how its process began.
func TestAPendingUnplugIsOverForGoodOnceTheGuestWasBooted(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		must(t, w.SetUnplug(web, hvtest.UnplugWaits))
		wantCode(t, failed(d.detach("asks", web)), api.CodeInstanceBusy)
		d.RestartAfter(func() {
			must(t, w.Destroy(web))
			must(t, w.Start(web))
		})
		pass(restoreEvery)
		must(t, w.SuspendByUser(web))
		must(t, w.ResumeByUser(web))
		must(t, w.unplugs.MayMove(context.Background(), testVolume))
		d.Restart()
		must(t, w.unplugs.MayMove(context.Background(), testVolume))
	}, hv.StateRunning)
}
