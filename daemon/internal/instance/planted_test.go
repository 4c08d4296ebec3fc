// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// looksAt makes a host check the files of the pool.
func (p *places) looksAt(n *hosttest.Hypervisor, planted hosttest.Planted) {
	rules := planted.Rules(n.Fake)
	p.rules, p.pools = &rules, n.Fake
}

// failureOf requests an op, and returns its refusal or its failure.
func failureOf(t *testing.T, d *daemon, what string) error {
	t.Helper()
	g, runner := d.Now()
	if _, err := begins[what](t.Context(), g, testOp); err != nil {
		return err
	}
	st, err := runner.Wait(t.Context(), testOp)
	must(t, err)
	if st.Failure == nil {
		return nil
	}
	return api.Errorf(api.Code(st.Failure.Code), "%s", st.Failure.Message)
}

func TestNothingIsUnshelvedThroughALinkInAPool(t *testing.T) {
	for _, when := range []string{"before the request", "when the instance was claimed"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, api.InstanceShelvedOffloaded)
				alpha := w.nodes[0]
				planted := hosttest.PlantLater(t, alpha.Fake, testSize)
				alpha.looksAt(alpha.Hypervisor, planted)
				w.registry.atts[1].Location = planted.Location
				if when == "before the request" {
					planted.Plant(t)
				} else {
					w.registry.onMove = func(to api.InstanceState) {
						if to == api.InstanceShelved {
							planted.Plant(t)
						}
					}
				}
				planted.Refused(t, failureOf(t, startDaemon(t, alpha), "unshelve"))
				must(t, w.settled())
				if got := w.registry.now().inst; got.State != api.InstanceShelvedOffloaded {
					t.Errorf("the instance is %s on %q", got.State, got.Host)
				}
				if dom, err := alpha.Fake.Domain(t.Context(), web); err == nil {
					t.Errorf("the domain %+v is left", dom)
				}
			})
		})
	}
}

// TestNoGuestIsStartedThroughALinkInAPool, even if the link is planted while the start waits for
// libvirt.
func TestNoGuestIsStartedThroughALinkInAPool(t *testing.T) {
	for _, when := range []string{"before the request", "while libvirt was away"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, api.InstanceStopped)
				alpha := w.nodes[0]
				planted := hosttest.PlantLater(t, alpha.Fake, testSize)
				alpha.looksAt(alpha.Hypervisor, planted)
				w.registry.atts[1].Location = planted.Location
				must(t, alpha.Fake.SetConfigChain(t.Context(), web, "vdb", []hv.Image{rawImage(planted.Location.Path)}))
				d := startDaemon(t, alpha)
				if when == "before the request" {
					planted.Plant(t)
				} else {
					alpha.Inject(hvtest.Fault{Call: "PowerOn", Err: hv.ErrUnavailable, Do: func() {
						planted.Plant(t)
						d.awayFor(time.Minute)
					}})
				}
				planted.Refused(t, failureOf(t, d, "start"))
				must(t, w.settled())
			})
		})
	}
}

func TestNoGuestIsRestoredThroughALinkInAPool(t *testing.T) {
	for _, when := range []string{"before the request", "when the definition named it"} {
		t.Run(when, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				planted := hosttest.PlantLater(t, d.world.Fake, pausedSize)
				rules := planted.Rules(d.world.Fake)
				d.world.places = places{rules: &rules, pools: d.world.Fake}
				wantState(t, d.save("save"), op.StateDone, "")
				must(t, d.world.Copy(pausedSrc, planted.Location.Path))
				d.world.set(func() { d.world.at = planted.Location.Path })
				d.world.planted = planted.Location
				if when == "before the request" {
					planted.Plant(t)
				} else {
					d.world.Inject(hvtest.Fault{Call: "SetConfigChain", After: true, Do: func() { planted.Plant(t) }})
				}
				st := d.restoreAs("restore", pausedWeb, api.InstanceRestore{Location: planted.Location})
				wantState(t, st, op.StateUndone, api.CodeNeedsOperator)
				planted.Named(t, st.Failure.Message)
				planted.Untouched(t)
				must(t, d.world.asleep(true))
				dom, err := d.world.Fake.Domain(t.Context(), pausedWeb)
				must(t, err)
				if at := dom.ConfigDisk("vdb").Top().Path; when == "before the request" && at != pausedSrc {
					t.Errorf("the definition names %s", at)
				}
			}, hv.StateRunning)
		})
	}
}
