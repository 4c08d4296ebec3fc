// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// goals are what simulations run: ops that nothing but what happens keeps from
// their end, and ops that are undone.
var goals = map[string]struct {
	kind  string
	spoil func(w *world)
	// root is of the root volume of an instance that is off.
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

// startsBehindTheGuard starts instance web before its definition loses the root: the
// hook had let that through before the guard was there.
func (w *world) startsBehindTheGuard() {
	w.Inject(hvtest.Fault{Call: "DetachDisk", Do: func() {
		w.guards.let(true)
		_ = w.Start(web)
		w.guards.let(false)
	}})
}

// everyCall runs an attach, and a detach, again and again, and lets something
// happen at its first call of the hypervisor or the registry, then at its second,
// and so on, until one ran to its end before it happened.
func everyCall(t *testing.T, from []hv.State, what func(d *daemon) happening) {
	for _, state := range from {
		for goal := range goals {
			if goals[goal].root && state != hv.StateStopped {
				continue
			}
			t.Run(goal+" "+string(state), func(t *testing.T) {
				// Who waits for a guest looks again and again, at the same.
				const each, stride = 40, 9
				step := 1
				if testing.Short() { // for the race detector
					step = 11
				}
				for n := 1; ; n += step + n/each*stride {
					reached := false
					t.Run(fmt.Sprintf("call %d", n), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { reached = simulate(t, state, goal, n, what) })
					})
					if !reached || t.Failed() {
						return
					}
				}
			})
		}
	}
}

// simulate runs one op with something that happens at its nth call, and judges
// the world when everything is well again. It says whether that call came.
func simulate(t *testing.T, state hv.State, goal string, n int, what func(d *daemon) happening) bool {
	t.Helper()
	kind := goals[goal].kind
	var w *world
	switch {
	case goals[goal].root:
		w = newRootWorld(t, kind == kindDetach)
	default:
		w = newWorld(t, state)
		if kind == kindDetach {
			w.attached(t, testAtt, web)
		}
	}
	goals[goal].spoil(w)
	d := startDaemon(t, w)
	synctest.Wait()
	h := what(d)
	w.mu.Lock()
	h.nth = w.calls + n
	w.happens = h
	w.mu.Unlock()
	_ = askUntilEnd(t, d, kind)
	calm(t, d)
	if err := w.settled(); err != nil {
		t.Errorf("%v; the registry was told %v", err, w.registry.told)
	}
	return w.happened
}

// askUntilEnd is a caller who asks until there is an end, as a person would.
func askUntilEnd(t *testing.T, d *daemon, kind string) error {
	t.Helper()
	for try := 0; ; try++ {
		g, _ := d.now()
		id := fmt.Sprintf("%s-%d", testOp, try)
		var err error
		if kind == kindAttach {
			_, err = g.Attach(context.Background(), id, "vol", api.VolumeAttach{Instance: "web", Root: d.world.registry.root != nil})
		} else {
			_, err = g.Detach(context.Background(), id, "vol", api.VolumeDetach{Instance: "web"})
		}
		switch code := api.CodeOf(err); {
		case errors.Is(err, op.ErrStopped), errors.Is(err, op.ErrNotFound):
			pass(10 * time.Second) // the daemon died; its op goes on
			return nil
		case code == api.CodeNeedsOperator, code == api.CodeInternal:
			t.Errorf("try %d: %v", try, err)
			return err
		case code != api.CodeHypervisorUnavailable && code != api.CodeRegistryUnavailable || try > 5:
			return err
		}
		pass(10 * time.Second)
	}
}

// calm lets what was set off come to its end, with everything well again.
func calm(t *testing.T, d *daemon) {
	t.Helper()
	w := d.world
	pass(2 * time.Minute)
	w.mu.Lock()
	w.happens.nth = 0
	w.mu.Unlock()
	_ = w.SetUnplug(web, hvtest.UnplugAtOnce)
	_ = w.ResumeByUser(web)
	pass(10 * time.Minute)
	synctest.Wait()
	_, runner := d.now()
	for _, st := range runner.Active() {
		t.Errorf("op %s is left in step %s, waiting for %q: %+v", st.Op.Kind, st.Step, st.Waiting, st.Failure)
	}
}

func awayFor(d *daemon, how time.Duration) {
	w := d.world
	w.setAway(true)
	time.AfterFunc(how, func() {
		w.setAway(false)
		_, runner := d.now()
		runner.Wake(request.WaitHypervisor)
	})
}

func (w *world) setAway(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

func registryAwayFor(d *daemon, how time.Duration) {
	d.world.registry.setDown(true)
	time.AfterFunc(how, func() {
		d.world.registry.setDown(false)
		_, runner := d.now()
		runner.Wake(request.WaitRegistry)
	})
}

func TestTheAnswerOfEveryCallIsLost(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after its effect %t", after), func(t *testing.T) {
			everyCall(t, states, func(*daemon) happening { return happening{after: after, lose: true} })
		})
	}
}

func TestLibvirtGoesAwayAtEveryCall(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after its effect %t", after), func(t *testing.T) {
			everyCall(t, states, func(d *daemon) happening {
				return happening{after: after, lose: true, do: func() { awayFor(d, time.Minute) }}
			})
		})
	}
}

func TestTheRegistryGoesAwayAtEveryCall(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after its effect %t", after), func(t *testing.T) {
			everyCall(t, states, func(d *daemon) happening {
				return happening{after: after, do: func() { registryAwayFor(d, time.Minute) }}
			})
		})
	}
}

func TestTheDaemonDiesAtEveryCall(t *testing.T) {
	everyCall(t, states, func(d *daemon) happening {
		return happening{do: func() { d.wg.Go(d.restart) }}
	})
}

func TestTheGuestIsDestroyedAtEveryCall(t *testing.T) {
	everyCall(t, []hv.State{hv.StateRunning, hv.StatePaused}, func(d *daemon) happening {
		return happening{do: func() { _ = d.world.Destroy(web) }}
	})
}

func TestTheGuestCrashesAtEveryCallAndIsStartedAgain(t *testing.T) {
	everyCall(t, []hv.State{hv.StateRunning, hv.StatePaused}, func(d *daemon) happening {
		return happening{after: true, do: func() {
			_ = d.world.Crash(web)
			_ = d.world.Start(web)
		}}
	})
}

func TestTheGuestIsStartedAtEveryCall(t *testing.T) {
	everyCall(t, []hv.State{hv.StateStopped}, func(d *daemon) happening {
		return happening{do: func() { _ = d.world.Start(web) }}
	})
}

func TestTheGuestIsSavedAndRestoredAtEveryCall(t *testing.T) {
	everyCall(t, []hv.State{hv.StateRunning}, func(d *daemon) happening {
		return happening{do: func() {
			if d.world.Save(web) == nil {
				time.AfterFunc(time.Minute, func() { _ = d.world.Start(web) })
			}
		}}
	})
}

func TestTheGuestStopsAnsweringAtEveryCallAndReboots(t *testing.T) {
	for _, how := range []hvtest.Unplug{hvtest.UnplugWaits, hvtest.UnplugRefuses} {
		t.Run(string(how), func(t *testing.T) {
			everyCall(t, []hv.State{hv.StateRunning}, func(d *daemon) happening {
				return happening{do: func() {
					_ = d.world.SetUnplug(web, how)
					time.AfterFunc(time.Minute, func() { _ = d.world.Reboot(web) })
				}}
			})
		})
	}
}

// Whatever goes wrong, in any order: the seed names the run.
func TestNothingIsLeftHalfDoneWhateverHappens(t *testing.T) {
	const runs = 400
	for seed := range uint64(runs) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, rand.New(rand.NewPCG(seed, 1))) })
		})
		if t.Failed() {
			return
		}
	}
}

// chaos attaches and detaches while one thing after the other goes wrong.
func chaos(t *testing.T, rng *rand.Rand) {
	w := newWorld(t, states[rng.IntN(len(states))])
	if rng.IntN(2) == 0 {
		w = newRootWorld(t, rng.IntN(2) == 0)
	}
	d := startDaemon(t, w)
	synctest.Wait()
	for range 6 {
		what := troubles[rng.IntN(len(troubles))]
		w.mu.Lock()
		w.happens = happening{nth: w.calls + 1 + rng.IntN(40), after: rng.IntN(2) == 0, lose: rng.IntN(3) == 0, do: func() { what(d) }}
		w.mu.Unlock()
		_ = askUntilEnd(t, d, []string{kindAttach, kindDetach}[rng.IntN(2)])
	}
	calm(t, d)
	if dom, err := w.Fake.Domain(t.Context(), web); err == nil && dom.ManagedSave {
		must(t, w.Start(web))
		pass(10 * time.Minute)
	}
	if err := w.settled(); err != nil {
		t.Errorf("%v; the registry was told %v", err, w.registry.told)
	}
}

var troubles = []func(d *daemon){
	func(d *daemon) { awayFor(d, 20*time.Second) },
	func(d *daemon) { registryAwayFor(d, 20*time.Second) },
	func(d *daemon) { d.wg.Go(d.restart) },
	func(d *daemon) { _ = d.world.Destroy(web) },
	func(d *daemon) { _ = d.world.Start(web) },
	func(d *daemon) { _ = d.world.Reboot(web) },
	func(d *daemon) { _ = d.world.SuspendByUser(web) },
	func(d *daemon) { _ = d.world.ResumeByUser(web) },
	func(d *daemon) { _ = d.world.SetUnplug(web, hvtest.UnplugWaits) },
	func(d *daemon) { _ = d.world.SetUnplug(web, hvtest.UnplugRefuses) },
	func(d *daemon) { _ = d.world.SetUnplug(web, hvtest.UnplugAtOnce) },
	func(d *daemon) { _ = d.world.ReleaseDevice(web, "vdb") },
}
