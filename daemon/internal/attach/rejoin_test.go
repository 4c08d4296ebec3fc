// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// A host that was fenced and has lost nothing is back while its ops are at work:
// no attachment is left in a state that nobody leads out of.

func TestADetachEndsUnderTheNewEpochOfItsHost(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		must(t, w.SetUnplug(web, hvtest.UnplugWaits))
		time.AfterFunc(5*time.Second, func() {
			w.registry.Refence(testHost)
			_ = w.ReleaseDevice(web, "vdb")
		})
		_, err := d.detach("d", web)
		must(t, err)
		if got := w.registry.state(); got != "" {
			t.Errorf("the attachment is left %s", got)
		}
	}, hv.StateRunning)
}

func TestADetachIsGivenUpUnderTheNewEpochOfItsHost(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		must(t, w.SetUnplug(web, hvtest.UnplugWaits))
		time.AfterFunc(5*time.Second, func() { w.registry.Refence(testHost) })
		_, err := d.detach("d", web)
		wantCode(t, err, api.CodeInstanceBusy)
		if got := w.registry.state(); got != api.AttachmentAttached {
			t.Errorf("the attachment is left %s", got)
		}
	}, hv.StateRunning)
}

func TestAnAttachThatAFenceEndedGivesTheVolumeBack(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.registry.onTell = func(to api.AttachmentState) {
			if to == api.AttachmentAttaching {
				w.registry.NextEpoch(testHost, true)
			}
		}
		_, err := d.attach("a", api.VolumeAttach{Instance: "web"})
		wantCode(t, err, api.CodeStaleEpoch)
		if live, config := d.disks(t, web); live != nil || config != nil {
			t.Errorf("the guest has %+v, its definition %+v", live, config)
		}
		if left := w.registry.all(); len(left) > 0 {
			t.Errorf("left: %+v", left)
		}
	}, hv.StateRunning)
}

func TestAQueuedReleaseIsTakenUnderTheNewEpochOfItsHost(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		w.known[testAtt] = w.registry.rows[testAtt]
		w.registry.SetDown(true)
		g, _ := d.Now()
		_, err := g.Delete(t.Context(), "d", testAtt, false)
		wantCode(t, err, "")
		if len(g.Queued()) != 1 {
			t.Fatalf("queued: %+v", g.Queued())
		}
		w.registry.Refence(testHost)
		w.registry.SetDown(false)
		<-time.After(time.Minute)
		if left := w.registry.all(); len(left) > 0 || len(g.Queued()) > 0 {
			t.Errorf("left: %+v, queued: %+v", left, g.Queued())
		}
	}, hv.StateRunning)
}
