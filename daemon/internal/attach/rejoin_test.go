// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// A fenced host that has lost nothing is back while its ops still run: no attachment stays in a
// transient state.

func TestAFenceInTheMiddleOfADetachEndsItByTheEpochOfTheHost(t *testing.T) {
	for name, c := range map[string]struct {
		rejoins, lets bool // the guest releases the disk
		code          api.Code
		left          api.AttachmentState
	}{
		"fenced, and the attachment is left": {lets: true, left: api.AttachmentDetaching},
		"back, and it ends":                  {rejoins: true, lets: true},
		"back, and it is given up":           {rejoins: true, code: api.CodeInstanceBusy, left: api.AttachmentAttached},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				w := d.world
				w.attached(t, testAtt, web)
				must(t, w.SetUnplug(web, hvtest.UnplugWaits))
				time.AfterFunc(5*time.Second, func() {
					w.registry.With(func() { w.registry.NextEpoch(testHost, c.rejoins) })
					if c.lets {
						_ = w.ReleaseDevice(web, "vdb")
					}
				})
				wantCode(t, failed(d.detach("d", web)), c.code)
				if got := w.registry.state(); got != c.left {
					t.Errorf("the attachment is left %q, want %q", got, c.left)
				}
			}, hv.StateRunning)
		})
	}
}

// The attachment stays while the host is fenced, and is released when it is back.
func TestAFenceInTheMiddleOfAnAttachTakesTheDiskBack(t *testing.T) {
	for _, rejoins := range []bool{false, true} {
		inBubble(t, func(t *testing.T, d *daemon) {
			w := d.world
			w.registry.onChange = func(to api.AttachmentState) {
				if to == api.AttachmentAttaching {
					w.registry.NextEpoch(testHost, rejoins)
				}
			}
			wantCode(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})), api.CodeStaleEpoch)
			if live, config := d.disks(t, web); live != nil || config != nil {
				t.Errorf("the guest has %+v, its definition %+v", live, config)
			}
			if rejoins {
				w.wantNone(t)
			}
		}, hv.StateRunning)
	}
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
