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
