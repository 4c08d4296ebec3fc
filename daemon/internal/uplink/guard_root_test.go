// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// rootWorld is a world with ops that attach and detach web's root volume, in definition and guard
// only. Web is off, and its root slot in the registry is empty.
type rootWorld struct {
	*world
	runner *op.Runner
	// atDomains is called when a report has read all domains; beforeDomain and afterDomain around a
	// read of one domain.
	atDomains, beforeDomain, afterDomain func()
	// attaching and stayOff are steps in the middle of the two ops.
	attaching, stayOff func(context.Context) error
}

func nothing() {}

func inRootWorld(t *testing.T, f func(w *rootWorld)) {
	t.Helper()
	bubble(t, func(w *world) {
		good := func(context.Context) error { return nil }
		r := &rootWorld{world: w, atDomains: nothing, beforeDomain: nothing, afterDomain: nothing, attaching: good, stayOff: good}
		zero := 0
		w.registry.instances[0].BlockDeviceMappings = []api.BlockDeviceMapping{{Device: "vda", BootIndex: &zero}}
		w.registry.attachments = nil
		w.must(w.fake.Destroy(web))
		r.start()
		defer r.runner.Stop()
		w.specialHV, w.specialOps = lookedAt{w.fake, r}, runnerOps{r.runner}
		w.open()
		r.report()
		r.report() // the view of the first report becomes current
		f(r)
	})
}

// report makes a report in the test's own goroutine: its calls may wait for the ops.
func (w *rootWorld) report() {
	w.t.Helper()
	w.must(w.up.ReportNow(w.t.Context()))
}

func (w *rootWorld) start() {
	w.t.Helper()
	act := func(name string, do, undo func(context.Context) error) op.Step {
		s := op.Step{Name: name, Do: func(ctx context.Context, _ *op.Run) error { return do(ctx) }}
		if undo != nil {
			s.Undo = func(ctx context.Context, _ *op.Run) error { return undo(ctx) }
		}
		return s
	}
	in := func(ctx context.Context) error {
		return w.fake.AttachDisk(ctx, web, hv.Config, hv.DiskSpec{Target: "vda", Image: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/nfs/web.raw"}})
	}
	out := func(ctx context.Context) error { return w.fake.DetachDisk(ctx, web, hv.Config, "vda") }
	keepOff := func(context.Context) error { return w.guards.Set(web, guard.OwnerRoot, "an op") }
	unguard := func(context.Context) error { return w.guards.Clear(web, guard.OwnerRoot) }
	w.runner = optest.NewRunner(optest.NewJournal())
	w.runner.Register([]op.Plan{
		{Kind: "attach", Commit: "in", Steps: []op.Step{
			act("attaching", func(ctx context.Context) error { return w.attaching(ctx) }, nil), act("in", in, nil), act("unguard", unguard, nil),
		}},
		{Kind: "detach", Commit: "stay_off", Steps: []op.Step{
			act("guard", keepOff, unguard), act("out", out, in), act("stay_off", func(ctx context.Context) error { return w.stayOff(ctx) }, nil),
		}},
	}...)
	w.must(w.runner.Resume(w.t.Context()))
}

func (w *rootWorld) submit(kind string) {
	w.t.Helper()
	w.must(w.runner.Submit(w.t.Context(), op.Op{ID: kind, Kind: kind, Keys: []string{request.InstanceKey(web), request.PowerKey(web)}}))
}

func (w *rootWorld) ends(kind string, want op.State) {
	w.t.Helper()
	st, err := w.runner.Wait(w.t.Context(), kind)
	w.must(err)
	if st.State != want {
		w.t.Fatalf("the %s is %s: %+v", kind, st.State, st.Failure)
	}
	synctest.Wait() // until the op has ended
}

// takeOut removes web's root, and its guard too.
func (w *rootWorld) takeOut() {
	w.t.Helper()
	w.must(w.fake.DetachDisk(w.t.Context(), web, hv.Config, "vda"))
}

// want checks whether web has a root, and the guard.
func (w *rootWorld) want(root, guarded bool) {
	w.t.Helper()
	dom, err := w.fake.Domain(w.t.Context(), web)
	w.must(err)
	has, err := w.guards.Has(web, guard.OwnerRoot)
	w.must(err)
	if got := dom.ConfigDisk("vda") != nil; got != root || has != guarded {
		w.t.Errorf("it has a root: %t, want %t; it has the guarded: %t, want %t", got, root, has, guarded)
	}
}

// runnerOps are a runner's ops.
type runnerOps struct{ *op.Runner }

func (o runnerOps) Halt(context.Context) error { o.Runner.Halt(); return nil }

// lookedAt is a hypervisor with hooks around its reads.
type lookedAt struct {
	*hvtest.Fake
	w *rootWorld
}

func (h lookedAt) Domains(ctx context.Context) ([]hv.Domain, error) {
	doms, err := h.Fake.Domains(ctx)
	h.w.atDomains()
	return doms, err
}

func (h lookedAt) Domain(ctx context.Context, id string) (*hv.Domain, error) {
	h.w.beforeDomain()
	dom, err := h.Fake.Domain(ctx, id)
	h.w.afterDomain()
	return dom, err
}

func TestARootThatIsAttachedSinceTheReportLookedIsNotGuarded(t *testing.T) {
	inRootWorld(t, func(w *rootWorld) {
		w.takeOut()
		w.atDomains = func() {
			w.submit("attach")
			w.ends("attach", op.StateDone)
		}
		w.report()
		w.want(true, false)
	})
}

func TestAnAttachThatComesWhileTheGuardIsSetClearsIt(t *testing.T) {
	inRootWorld(t, func(w *rootWorld) {
		w.takeOut()
		w.afterDomain = func() {
			w.submit("attach")
			synctest.Wait()
		}
		w.report()
		w.ends("attach", op.StateDone)
		w.want(true, false)
	})
}

// The root is attached after the report has read all domains, and detached when it reads this one
// again.
func TestADetachThatComesWhileTheGuardIsSetHasTheLastWord(t *testing.T) {
	for name, c := range map[string]struct {
		err         error
		end         op.State
		root, guard bool
	}{
		"done":   {nil, op.StateDone, false, true},
		"undone": {errBoom, op.StateUndone, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inRootWorld(t, func(w *rootWorld) {
				goOn := make(chan struct{})
				w.stayOff = func(context.Context) error { <-goOn; return c.err }
				w.takeOut()
				w.atDomains = func() {
					w.submit("attach")
					w.ends("attach", op.StateDone)
				}
				w.beforeDomain = func() {
					w.submit("detach")
					synctest.Wait()
				}
				w.afterDomain = func() {
					close(goOn)
					synctest.Wait()
				}
				w.report()
				w.ends("detach", c.end)
				w.want(c.root, c.guard)
			})
		})
	}
}

// The op makes a report itself, like the ops of instances.
func TestAReportInTheMiddleOfAnOpLeavesTheGuardToTheNext(t *testing.T) {
	inRootWorld(t, func(w *rootWorld) {
		w.takeOut()
		var reported error
		w.attaching = func(ctx context.Context) error {
			reported = w.up.ReportNow(ctx)
			return errBoom
		}
		w.submit("attach")
		w.ends("attach", op.StateUndone)
		w.must(reported)
		w.want(false, false)
		w.report()
		w.want(false, true)
	})
}

func TestAHaltedHostSetsTheGuardOnceItsOpsGoOn(t *testing.T) {
	inRootWorld(t, func(w *rootWorld) {
		w.takeOut()
		w.runner.Halt()
		w.report()
		w.want(false, false)
		w.must(w.runner.Resume(t.Context()))
		w.report()
		w.want(false, true)
	})
}
