// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// lateForce is a registry with an operator who takes one more attachment by force between the
// host's read of its attachments and its admission.
type lateForce struct {
	*registry
	taken string
}

func (r *lateForce) RejoinHost(ctx context.Context, id string, in api.HostRejoin) (api.Host, error) {
	r.set(func() {
		if r.fenced {
			r.attachments = slices.DeleteFunc(r.attachments, func(a api.Attachment) bool { return a.ID == r.taken })
		}
	})
	return r.registry.RejoinHost(ctx, id, in)
}

// An attachment that was taken during the host's return is handled like those taken before.
func TestAnAttachmentThatIsTakenWhileItsHostComesBackIsLetGo(t *testing.T) {
	bubble(t, func(w *world) {
		w.specialRegistry = &lateForce{registry: w.registry, taken: attachment("web")}
		w.start()
		pass(time.Minute)
		w.registry.fence()
		pass(time.Minute)
		w.wantBack(2)
		w.kill()
	})
}

// The same, with the daemon's death at each call.
func TestAnAttachmentThatIsTakenWhileItsHostComesBackIsLetGoWhateverDies(t *testing.T) {
	for n, name := 1, "the first"; name != "" && !t.Failed(); n++ {
		bubble(t, func(w *world) {
			w.specialRegistry = &lateForce{registry: w.registry, taken: attachment("web")}
			w.start()
			pass(time.Minute)
			w.registry.fence()
			if name = w.interrupted(n, hosttest.Happening{After: true, Lose: true, Err: errBoom}, true); name != "" {
				w.start()
				pass(time.Minute)
				w.wantBack(2)
			} else if n < 8 {
				t.Errorf("only %d calls were interrupted", n-1)
			}
			w.kill()
		})
	}
}

// The registry itself moves the attachments of a volume, with all guests paused. A guest is
// restored at dst long before the next view has it there, or not at all: a fence finds it at either
// location.
func TestAnAttachmentThatHasMovedSinceTheLastViewIsLetGoAtEitherPlace(t *testing.T) {
	const dst = "/nfs/moved.raw"
	for _, at := range []string{"/nfs/web.raw", dst} {
		t.Run(at, func(t *testing.T) {
			running(t, func(w *world) {
				w.must(w.fake.Destroy(web))
				if at == dst {
					w.must(w.fake.CreateImage(dst, hvtest.Raw, 8*hvtest.BlockSize))
					w.must(w.fake.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: dst}}))
				}
				w.must(w.fake.Start(web))
				w.registry.set(func() {
					for i := range w.registry.attachments {
						if w.registry.attachments[i].InstanceID == web {
							w.registry.attachments[i].Location.Path = dst
						}
					}
				})
				w.must(w.up.grantFound(granted("web", web, dst)))
				if a, known := w.up.Known(t.Context(), attachment("web")); !known || a.Location.Path != dst {
					t.Errorf("it is known at %s", a.Location.Path)
				}
				w.registry.fence(attachment("web"))
				pass(time.Minute)
				w.wantBack(2)
			})
		})
	}
}

// The registry compares the mark in a report before it admits any change of the host; a fenced host
// sends no other report.
func TestAFencedHostReportsToARegistryThatWasJustStarted(t *testing.T) {
	for name, learn := range map[string]func(w *world){
		"and learns of the fence from a report": func(w *world) { pass(time.Minute) },
		"and learns of the fence from another answer": func(w *world) {
			_ = w.up.refused(1, true, api.Errorf(api.CodeStaleEpoch, "fenced").With("epoch", int64(2)))
			pass(time.Minute)
		},
		"and knows of the fence since its own start": func(w *world) {
			w.registry.SetDown(true)
			_ = w.up.refused(1, true, api.Errorf(api.CodeStaleEpoch, "fenced").With("epoch", int64(2)))
			w.kill()
			w.registry.SetDown(false)
			w.start()
			pass(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			running(t, func(w *world) {
				w.registry.fence(attachment("web"))
				w.registry.set(func() { w.registry.justStarted = true })
				learn(w)
				w.wantBack(2)
			})
		})
	}
}
