// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// goals are the ops of the simulations: ops that succeed unless the trial prevents it, and ops that
// are undone.
var goals = map[string]struct {
	kind  string
	spoil func(w *world)
	// root is for the root volume of an instance that is off.
	root bool
}{
	"attach":          {kind: kindAttach, spoil: func(*world) {}},
	"detach":          {kind: kindDetach, spoil: func(*world) {}},
	"attach, undone":  {kind: kindAttach, spoil: func(w *world) { w.registry.refuses = api.AttachmentAttached }},
	"detach, undone":  {kind: kindDetach, spoil: func(w *world) { _ = w.SetUnplug(web, hvtest.UnplugRefuses) }},
	"detach, unheard": {kind: kindDetach, spoil: func(w *world) { _ = w.SetUnplug(web, hvtest.UnplugWaits) }},
	"attach, taken back": {kind: kindAttach, spoil: func(w *world) {
		w.registry.refuses = api.AttachmentAttached
		_ = w.SetUnplug(web, hvtest.UnplugWaits)
	}},
	"attach root":         {kind: kindAttach, spoil: func(*world) {}, root: true},
	"detach root":         {kind: kindDetach, spoil: func(*world) {}, root: true},
	"attach root, undone": {kind: kindAttach, spoil: func(w *world) { w.registry.refuses = api.AttachmentAttached }, root: true},
	"detach root, undone": {kind: kindDetach, spoil: func(w *world) { w.startsBehindTheGuard() }, root: true},
}

// startsBehindTheGuard starts instance web before its definition loses the root: the hook had
// permitted the start before the guard existed.
func (w *world) startsBehindTheGuard() {
	w.Inject(hvtest.Fault{Call: "DetachDisk", Do: func() {
		w.guards.Let(true)
		_ = w.Start(web)
		w.guards.Let(false)
	}})
}

// everyCall runs an attach and a detach repeatedly, with a happening at the first call of the
// hypervisor or the registry, then at the second, and so on, until a run ends before it.
func everyCall(t *testing.T, from []hv.State, what func(d *daemon) hosttest.Happening) {
	// An op that waits for a guest repeats the same reads.
	const each, stride = 40, 9
	step := hosttest.Stride(11)
	for _, state := range from {
		for goal := range goals {
			if goals[goal].root && state != hv.StateStopped {
				continue
			}
			calls := func(image bool) func(t *testing.T) {
				return func(t *testing.T) {
					hosttest.EveryCall(t, func(n int) int { return step(n) + n/each*stride }, func(t *testing.T, n int) bool {
						return simulate(t, state, image, goal, n, what)
					})
				}
			}
			t.Run(goal+" "+string(state), calls(false))
			if state.Active() { // otherwise no process can be asked
				t.Run(goal+" "+string(state)+" at an RBD image", calls(true))
			}
		}
	}
}

// simulate runs one op with a happening at the nth call, checks the world once everything works
// again, and reports whether that call was made.
func simulate(t *testing.T, state hv.State, image bool, goal string, n int, what func(d *daemon) hosttest.Happening) bool {
	t.Helper()
	kind := goals[goal].kind
	var w *world
	switch {
	case goals[goal].root:
		w = newRootWorld(t, kind == kindDetach)
	default:
		w = newWorld(t, state)
		if image {
			w.atImage(t)
		}
		if kind == kindDetach {
			w.attached(t, testAtt, web)
		}
	}
	goals[goal].spoil(w)
	d := startDaemon(t, w)
	synctest.Wait()
	w.Moments.Arrange(n, what(d))
	_ = askUntilEnd(t, d, kind)
	calm(t, d)
	if err := w.settled(); err != nil {
		t.Errorf("%v; the registry was told %v", err, w.registry.changes)
	}
	return w.Moments.Happened()
}

// askUntilEnd repeats the request until it has ended, as a person would.
func askUntilEnd(t *testing.T, d *daemon, kind string) error {
	t.Helper()
	return hosttest.Insist(t, func(try int) (err error) {
		g, _ := d.Now()
		id := fmt.Sprintf("%s-%d", testOp, try)
		if kind == kindAttach {
			_, err = g.Attach(context.Background(), id, "vol", api.VolumeAttach{Instance: "web", Root: d.world.registry.root != nil})
		} else {
			_, err = g.Detach(context.Background(), id, "vol", api.VolumeDetach{Instance: "web"})
		}
		return err
	})
}

// calm waits for the end of everything that was started, while everything works.
func calm(t *testing.T, d *daemon) {
	t.Helper()
	w := d.world
	pass(2 * time.Minute)
	w.Moments.Cancel()
	_ = w.SetUnplug(web, hvtest.UnplugAtOnce)
	_ = w.ResumeByUser(web)
	pass(10 * time.Minute)
	synctest.Wait()
	d.WantIdle()
}

func awayFor(d *daemon, how time.Duration) {
	d.AwayFor(how, d.world.SetAway, request.WaitHypervisor)
}

func registryAwayFor(d *daemon, how time.Duration) {
	d.AwayFor(how, d.world.registry.SetDown, request.WaitRegistry)
}

func TestTheAnswerOfEveryCallIsLost(t *testing.T) {
	hosttest.BeforeAndAfter(t, func(t *testing.T, after bool) {
		everyCall(t, states, func(*daemon) hosttest.Happening { return hosttest.Happening{After: after, Lose: true} })
	})
}

func TestLibvirtGoesAwayAtEveryCall(t *testing.T) {
	hosttest.BeforeAndAfter(t, func(t *testing.T, after bool) {
		everyCall(t, states, func(d *daemon) hosttest.Happening {
			return hosttest.Happening{After: after, Lose: true, Do: func() { awayFor(d, time.Minute) }}
		})
	})
}

func TestTheRegistryGoesAwayAtEveryCall(t *testing.T) {
	hosttest.BeforeAndAfter(t, func(t *testing.T, after bool) {
		everyCall(t, states, func(d *daemon) hosttest.Happening {
			return hosttest.Happening{After: after, Do: func() { registryAwayFor(d, time.Minute) }}
		})
	})
}

func TestTheDaemonDiesAtEveryCall(t *testing.T) {
	everyCall(t, states, func(d *daemon) hosttest.Happening {
		return hosttest.Happening{Do: func() { d.Restarts.Go(d.Restart) }}
	})
}

func TestTheGuestIsDestroyedAtEveryCall(t *testing.T) {
	everyCall(t, []hv.State{hv.StateRunning, hv.StatePaused}, func(d *daemon) hosttest.Happening {
		return hosttest.Happening{Do: func() { _ = d.world.Destroy(web) }}
	})
}

func TestTheGuestCrashesAtEveryCallAndIsStartedAgain(t *testing.T) {
	everyCall(t, []hv.State{hv.StateRunning, hv.StatePaused}, func(d *daemon) hosttest.Happening {
		return hosttest.Happening{After: true, Do: func() {
			_ = d.world.Crash(web)
			_ = d.world.Start(web)
		}}
	})
}

func TestTheGuestIsStartedAtEveryCall(t *testing.T) {
	everyCall(t, []hv.State{hv.StateStopped}, func(d *daemon) hosttest.Happening {
		return hosttest.Happening{Do: func() { _ = d.world.Start(web) }}
	})
}

func TestTheGuestIsSavedAndRestoredAtEveryCall(t *testing.T) {
	everyCall(t, []hv.State{hv.StateRunning}, func(d *daemon) hosttest.Happening {
		return hosttest.Happening{Do: func() {
			if d.world.Save(web) == nil {
				time.AfterFunc(time.Minute, func() { _ = d.world.Start(web) })
			}
		}}
	})
}

func TestTheGuestStopsAnsweringAtEveryCallAndReboots(t *testing.T) {
	for _, how := range []hvtest.Unplug{hvtest.UnplugWaits, hvtest.UnplugRefuses} {
		t.Run(string(how), func(t *testing.T) {
			everyCall(t, []hv.State{hv.StateRunning}, func(d *daemon) hosttest.Happening {
				return hosttest.Happening{Do: func() {
					_ = d.world.SetUnplug(web, how)
					time.AfterFunc(time.Minute, func() { _ = d.world.Reboot(web) })
				}}
			})
		})
	}
}

// Random faults in random order; the seed determines the run.
func TestNothingIsLeftHalfDoneWhateverHappens(t *testing.T) {
	seeds := 400
	if testing.Short() {
		seeds = 60
	}
	hosttest.EverySeed(t, seeds, func(t *testing.T, rng *rand.Rand) { chaos(t, rng) })
}

func TestOneSeedIsOneRunOfAnAttachment(t *testing.T) {
	hosttest.SameTwice(t, func(t *testing.T, rng *rand.Rand) []string { return chaos(t, rng).Calls() })
}

// chaos attaches and detaches during a sequence of faults.
func chaos(t *testing.T, rng *rand.Rand) *world {
	w := newWorld(t, states[rng.IntN(len(states))])
	if rng.IntN(2) == 0 {
		w = newRootWorld(t, rng.IntN(2) == 0)
	}
	d := startDaemon(t, w)
	synctest.Wait()
	for range 6 {
		what := troubles[rng.IntN(len(troubles))]
		w.Moments.Arrange(1+rng.IntN(40), hosttest.Happening{After: rng.IntN(2) == 0, Lose: rng.IntN(3) == 0, Do: func() { what(d) }})
		_ = askUntilEnd(t, d, []string{kindAttach, kindDetach}[rng.IntN(2)])
	}
	calm(t, d)
	if dom, err := w.Fake.Domain(t.Context(), web); err == nil && dom.ManagedSave {
		must(t, w.Start(web))
		pass(10 * time.Minute)
	}
	if err := w.settled(); err != nil {
		t.Errorf("%v; the registry was told %v", err, w.registry.changes)
	}
	return w
}

var troubles = []func(d *daemon){
	func(d *daemon) { awayFor(d, 20*time.Second) },
	func(d *daemon) { registryAwayFor(d, 20*time.Second) },
	func(d *daemon) { d.Restarts.Go(d.Restart) },
	func(d *daemon) { _ = d.world.Destroy(web) },
	func(d *daemon) { _ = d.world.Start(web) },
	func(d *daemon) { _ = d.world.Reboot(web) },
	func(d *daemon) { _ = d.world.SuspendByUser(web) },
	func(d *daemon) { _ = d.world.ResumeByUser(web) },
	func(d *daemon) { _ = d.world.SetUnplug(web, hvtest.UnplugWaits) },
	func(d *daemon) { _ = d.world.SetUnplug(web, hvtest.UnplugRefuses) },
	func(d *daemon) { _ = d.world.SetUnplug(web, hvtest.UnplugAtOnce) },
	func(d *daemon) { _ = d.world.ReleaseDevice(web, "vdb") },
	func(d *daemon) { d.world.journal.FailFor(20 * time.Second) },
	func(d *daemon) { d.world.journal.FailNext(false) },
	func(d *daemon) { d.world.journal.FailNext(true) },
}
