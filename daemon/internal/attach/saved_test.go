// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// A guest that is off is started with what the definition has at that moment, and
// saved with it before anybody has looked.
func TestTheGuestIsStartedAndSavedAtEveryCallAndRestored(t *testing.T) {
	everyCall(t, []hv.State{hv.StateStopped, hv.StateRunning}, func(d *daemon) happening {
		return happening{do: func() {
			_ = d.world.Destroy(web)
			_ = d.world.Start(web)
			if d.world.Save(web) == nil {
				time.AfterFunc(time.Minute, func() { _ = d.world.Start(web) })
			}
		}}
	})
}
