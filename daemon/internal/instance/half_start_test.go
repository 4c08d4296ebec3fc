// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// After a libvirtd has died in a start, the next one reports the guest, then ends the process.
func TestAStartThatLibvirtdHasLeftHalfDoneIsMadeAgain(t *testing.T) {
	const ending = 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceStopped)
		d := startDaemon(t, w.nodes[0])
		alpha := w.nodes[0]
		alpha.Inject(hvtest.Fault{Call: "PowerOn", After: true, Err: hv.ErrUnavailable, Do: func() {
			must(t, alpha.SetOccupied(web, true))
			time.AfterFunc(ending, func() { _ = alpha.Crash(web) })
		}})
		if err := askUntilEnd(t, d, "start"); err != nil {
			t.Error(err)
		}
		<-time.After(2 * ending) // fake time
		dom, err := alpha.Fake.Domain(t.Context(), web)
		must(t, err)
		if dom.State != hv.StateRunning {
			t.Errorf("start is done, and the guest is %s", dom.State)
		}
		calm(t, d)
	})
}
