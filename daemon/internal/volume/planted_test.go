// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"sync"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/internal/api"
)

func TestNothingIsAdoptedThroughALinkInAPool(t *testing.T) {
	for name, asked := range map[string]func(api.Location) api.VolumeAdopt{
		"by its name": func(l api.Location) api.VolumeAdopt { return api.VolumeAdopt{Pool: l.Pool, VolumeName: l.Name} },
		"by its path": func(l api.Location) api.VolumeAdopt { return api.VolumeAdopt{Path: l.Path} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			planted := hosttest.PlantLink(t, w.Fake, testSize)
			in := asked(planted.Location)
			in.Name, in.Format = "new", api.FormatRaw
			_, err := w.start(t).Adopt(t.Context(), testOp, in)
			planted.Refused(t, err)
		})
	}
}

// TestNothingIsResizedThroughALinkInAPool, planted before the request or right before the image
// grows. Once the image is back, the next request makes it larger.
func TestNothingIsResizedThroughALinkInAPool(t *testing.T) {
	for _, who := range []holder{nobody, stopped, running} {
		for _, when := range []string{"before the request", "when it was kept for that", "right before it grows"} {
			if who == running && when == "right before it grows" {
				continue // QEMU has the image open
			}
			t.Run(string(who)+", "+when, func(t *testing.T) {
				w := newWorld(t)
				planted := hosttest.PlantLater(t, w.Fake, testSize)
				vol := w.volumeAt(t, planted.Location, who)
				if when != "before the request" { // the rules refuse that before an image is read
					w.images.Places = planted.Rules(w.Fake)
				}
				switch when {
				case "before the request":
					planted.Plant(t)
				case "when it was kept for that":
					w.registry.onBegin = sync.OnceFunc(func() { planted.Plant(t) })
				default:
					w.images.BeforeGrow = func() { planted.Plant(t) }
				}
				m := w.start(t)
				resize := func(opID string) error {
					_, err := m.Resize(t.Context(), opID, vol.ID, api.VolumeResize{SizeBytes: grownSize})
					return err
				}
				err := resize(resizeOp)
				if when == "before the request" {
					planted.Refused(t, err)
				} else { // the image may have grown
					wantCode(t, err, api.CodeNeedsOperator)
					planted.Named(t, err.Error())
					planted.Untouched(t)
				}
				if now := w.registry.volumes[vol.ID]; now.SizeBytes != testSize {
					t.Errorf("the registry has %d bytes", now.SizeBytes)
				}
				planted.Restore(t)
				must(t, resize(testOp))
				must(t, w.hasSize(vol, who, grownSize))
			})
		}
	}
}
