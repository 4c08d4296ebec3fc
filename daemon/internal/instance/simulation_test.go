// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// begins are the calls of a manager, by their purpose.
var begins = map[string]func(ctx context.Context, g *Manager, id string) (api.Instance, error){
	"start": func(ctx context.Context, g *Manager, id string) (api.Instance, error) {
		return g.BeginStart(ctx, id, "web")
	},
	"stop": func(ctx context.Context, g *Manager, id string) (api.Instance, error) {
		return g.BeginStop(ctx, id, "web", api.InstanceStop{})
	},
	"force": func(ctx context.Context, g *Manager, id string) (api.Instance, error) {
		return g.BeginStop(ctx, id, "web", api.InstanceStop{Force: true})
	},
	"reboot": func(ctx context.Context, g *Manager, id string) (api.Instance, error) {
		return g.BeginReboot(ctx, id, "web")
	},
	"pause": func(ctx context.Context, g *Manager, id string) (api.Instance, error) {
		return g.BeginPause(ctx, id, "web")
	},
	"repair": func(ctx context.Context, g *Manager, id string) (api.Instance, error) {
		return g.BeginRepair(ctx, id, "web", api.InstanceRepair{})
	},
	"unpause": func(ctx context.Context, g *Manager, id string) (api.Instance, error) {
		return g.BeginUnpause(ctx, id, "web")
	},
	"shelve": func(ctx context.Context, g *Manager, id string) (api.Instance, error) {
		return g.BeginShelve(ctx, id, "web", api.InstanceShelve{})
	},
	"keep": func(ctx context.Context, g *Manager, id string) (api.Instance, error) {
		return g.BeginShelve(ctx, id, "web", api.InstanceShelve{KeepOnHost: true})
	},
	"unshelve": func(ctx context.Context, g *Manager, id string) (api.Instance, error) {
		return g.BeginUnshelve(ctx, id, "web")
	},
}

// goals are the ops of the simulations: ops that succeed unless the trial prevents it, and ops that
// are undone.
var goals = map[string]struct {
	from  api.InstanceState
	what  string
	spoil func(w *world)
}{
	"start":          {api.InstanceStopped, "start", nil},
	"stop":           {api.InstanceRunning, "stop", nil},
	"shelve":         {api.InstanceRunning, "shelve", nil},
	"keep":           {api.InstanceStopped, "keep", nil},
	"shelve, kept":   {api.InstanceShelved, "shelve", nil},
	"shelve, undone": {api.InstanceRunning, "shelve", func(w *world) { w.registry.refuses = api.InstanceShelved }},
	"unshelve":       {api.InstanceShelvedOffloaded, "unshelve", nil},
	"unshelve, kept": {api.InstanceShelved, "unshelve", nil},
	"repair": {api.InstanceStopped, "repair", func(w *world) {
		_ = w.nodes[0].Fake.SetConfigChain(context.Background(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/released.raw"}})
	}},
	"unshelve, undone": {api.InstanceShelvedOffloaded, "unshelve", func(w *world) { w.registry.refuses = api.InstanceStopped }},
	// libvirt's form of the definition is not the checked one.
	"unshelve, reaching into its host": {api.InstanceShelvedOffloaded, "unshelve", func(w *world) {
		w.nodes[0].Inject(hvtest.Fault{Call: "DefineDomain", After: true, Do: func() { _ = w.nodes[0].SetLeansOn(web, "a file") }})
	}},
	"unshelve, without its image": {api.InstanceShelvedOffloaded, "unshelve", func(w *world) {
		w.nodes[0].missing[dataPath] = true
	}},
}

// everyCall runs each goal repeatedly, with a happening at the first call of a hypervisor or the
// registry, then at the second, and so on, until a run ends before it.
func everyCall(t *testing.T, what func(d *daemon) hosttest.Happening) {
	for goal := range goals {
		t.Run(goal, func(t *testing.T) {
			hosttest.EveryCall(t, hosttest.Stride(9), func(t *testing.T, n int) bool { return simulate(t, goal, n, what) })
		})
	}
}

// simulate runs one op with a happening at the nth call, checks the world once everything works
// again, and reports whether that call was made.
func simulate(t *testing.T, goal string, n int, what func(d *daemon) hosttest.Happening) bool {
	t.Helper()
	w := newWorld(t, goals[goal].from)
	if spoil := goals[goal].spoil; spoil != nil {
		spoil(w)
	}
	d := startDaemon(t, w.nodes[0])
	synctest.Wait()
	h := what(d)
	w.moments.Arrange(n, h)
	failed := askUntilEnd(t, d, goals[goal].what)
	calm(t, d)
	if failed != nil && goals[goal].what == "repair" { // it has changed nothing, and is requested again
		_ = w.nodes[0].Fake.Destroy(web)
		failed = askUntilEnd(t, d, "repair")
	}
	if err := w.unheard(); err != nil && failed == nil && h.Lose {
		t.Errorf("the op is done: %v", err)
	}
	if err := w.settled(); err != nil {
		t.Errorf("%v; the registry was told %v", err, w.registry.changes)
	}
	return w.moments.Happened()
}

// askUntilEnd repeats the request until it has ended, as a person would.
func askUntilEnd(t *testing.T, d *daemon, what string) error {
	t.Helper()
	var ended error
	refused := hosttest.Insist(t, func(try int) error {
		g, runner := d.Now()
		id := d.node.world.newOp()
		if _, err := begins[what](context.Background(), g, id); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		st, err := runner.Wait(ctx, id)
		if st.State == op.StateNeedsOperator {
			t.Errorf("try %d: it waits for the operator: %+v", try, st.Failure)
		}
		ended = err
		return nil
	})
	return errors.Join(refused, ended)
}

// newOp returns an unused op id.
func (w *world) newOp() string { return fmt.Sprintf("%s-%d", testOp, w.asked.Add(1)) }

// calm waits for the end of everything that was started, while everything works.
func calm(t *testing.T, d *daemon) {
	t.Helper()
	w := d.node.world
	pass(3 * time.Minute)
	w.moments.Cancel()
	pass(10 * time.Minute)
	synctest.Wait()
	d.WantIdle()
}

func TestTheAnswerOfEveryCallIsLost(t *testing.T) {
	hosttest.BeforeAndAfter(t, func(t *testing.T, after bool) {
		everyCall(t, func(*daemon) hosttest.Happening { return hosttest.Happening{After: after, Lose: true} })
	})
}

func TestLibvirtGoesAwayAtEveryCall(t *testing.T) {
	hosttest.BeforeAndAfter(t, func(t *testing.T, after bool) {
		everyCall(t, func(d *daemon) hosttest.Happening {
			return hosttest.Happening{After: after, Lose: true, Do: func() { d.awayFor(time.Minute) }}
		})
	})
}

func TestTheRegistryGoesAwayAtEveryCall(t *testing.T) {
	hosttest.BeforeAndAfter(t, func(t *testing.T, after bool) {
		everyCall(t, func(d *daemon) hosttest.Happening {
			return hosttest.Happening{After: after, Do: func() { d.registryAwayFor(time.Minute) }}
		})
	})
}

func TestTheDaemonDiesAtEveryCall(t *testing.T) {
	everyCall(t, func(d *daemon) hosttest.Happening {
		return hosttest.Happening{Do: func() { d.Restarts.Go(d.Restart) }}
	})
}

func TestTheHostIsFencedAndBackAtEveryCall(t *testing.T) {
	everyCall(t, func(d *daemon) hosttest.Happening {
		return hosttest.Happening{Do: func() { d.node.world.registry.Refence(d.node.id) }}
	})
}

func TestSomebodyStartsTheGuestAtEveryCall(t *testing.T) {
	everyCall(t, func(d *daemon) hosttest.Happening { return hosttest.Happening{Do: func() { _ = d.node.Start(web) }} })
}

func TestTheGuestIsDestroyedAtEveryCall(t *testing.T) {
	everyCall(t, func(d *daemon) hosttest.Happening { return hosttest.Happening{Do: func() { _ = d.node.Destroy(web) }} })
}

func TestTheGuestStopsListeningAtEveryCall(t *testing.T) {
	everyCall(t, func(d *daemon) hosttest.Happening {
		return hosttest.Happening{Do: func() { _ = d.node.SetShutdown(web, hvtest.ShutdownIgnores) }}
	})
}

// Random faults in random order; the seed determines the run.
func TestNothingIsLeftHalfDoneWhateverHappens(t *testing.T) {
	seeds := 600
	if testing.Short() {
		seeds = 30
	}
	hosttest.EverySeed(t, seeds, func(t *testing.T, rng *rand.Rand) { chaos(t, rng) })
}

func TestOneSeedIsOneRunOfAnInstance(t *testing.T) {
	hosttest.SameTwice(t, func(t *testing.T, rng *rand.Rand) []string {
		w := chaos(t, rng)
		return slices.Concat(w.nodes[0].Calls(), w.nodes[1].Calls())
	})
}

// chaos starts, stops, shelves and unshelves an instance on two hosts, during a sequence of faults.
func chaos(t *testing.T, rng *rand.Rand) *world {
	w := newWorld(t, api.InstanceStopped)
	both := []*daemon{startDaemon(t, w.nodes[0]), startDaemon(t, w.nodes[1])}
	synctest.Wait()
	whats := []string{"start", "stop", "force", "reboot", "pause", "unpause", "shelve", "shelve", "keep", "unshelve", "unshelve"}
	for range 10 {
		d := both[rng.IntN(2)]
		what := troubles[rng.IntN(len(troubles))]
		w.moments.Arrange(1+rng.IntN(30), hosttest.Happening{After: rng.IntN(2) == 0, Lose: rng.IntN(3) == 0, Do: func() { what(d) }})
		_ = askUntilEnd(t, d, whats[rng.IntN(len(whats))])
	}
	for _, d := range both {
		calm(t, d)
	}
	if err := w.settled(); err != nil {
		t.Errorf("%v; the registry was told %v", err, w.registry.changes)
	}
	return w
}

var troubles = []func(d *daemon){
	func(d *daemon) { d.awayFor(20 * time.Second) },
	func(d *daemon) { d.registryAwayFor(20 * time.Second) },
	func(d *daemon) { d.Restarts.Go(d.Restart) },
	func(d *daemon) { d.node.world.registry.Refence(d.node.id) },
	func(d *daemon) { _ = d.node.Destroy(web) },
	func(d *daemon) { _ = d.node.Start(web) },
	func(d *daemon) { _ = d.node.SuspendByUser(web) },
	func(d *daemon) { _ = d.node.ResumeByUser(web) },
	func(d *daemon) { _ = d.node.SetShutdown(web, hvtest.ShutdownIgnores) },
	func(d *daemon) { _ = d.node.SetShutdown(web, hvtest.ShutdownObeys) },
	func(d *daemon) { d.node.journal.FailFor(20 * time.Second) },
	func(d *daemon) { d.node.journal.FailNext(false) },
	func(d *daemon) { d.node.journal.FailNext(true) },
}

// Two hosts request it together, in each order of their calls: one gets it, the other nothing.
func TestOfTwoHostsThatUnshelveAtOnceOneWins(t *testing.T) {
	for _, who := range [][2]int{{0, 1}, {1, 0}} {
		t.Run(fmt.Sprint(who), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, api.InstanceShelvedOffloaded)
				both := []*daemon{startDaemon(t, w.nodes[0]), startDaemon(t, w.nodes[1])}
				// The second host asks between the first one's checks and its claim.
				second := make(chan error, 1)
				go func() {
					second <- askUntilEnd(t, both[who[1]], "unshelve")
				}()
				first := askUntilEnd(t, both[who[0]], "unshelve")
				if err := <-second; first != nil && err != nil {
					t.Errorf("nobody won: %v, %v", first, err)
				}
				for _, d := range both {
					calm(t, d)
				}
				must(t, w.settled())
				if got := w.registry.now().inst; got.State != api.InstanceRunning {
					t.Errorf("the instance is %s on %q", got.State, got.Host)
				}
				if claims := slices.Index(w.registry.changes, api.InstanceShelved); claims != 0 || len(w.registry.changes) != 2 {
					t.Errorf("the registry was told %v", w.registry.changes)
				}
			})
		})
	}
}
