// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// LeaseEnv is an Env with a lock manager: a running domain has the leases of the images that it
// writes to.
type LeaseEnv interface {
	Env
	// Leased reports whether a domain has the lease of the image at path.
	Leased(tb testing.TB, path string) bool
	// LeaseElsewhere lets a domain of another host take the free lease of an image; end releases
	// it.
	LeaseElsewhere(tb testing.TB, path string) (end func())
	// OwnerResumes resumes a domain as its owner does, with the hypervisor's own tools.
	OwnerResumes(tb testing.TB, id string)
}

// LeaseConformance checks that a hypervisor with a lock manager keeps the promises of package hv on
// leases.
func LeaseConformance(t *testing.T, env LeaseEnv) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *leasedGuest){
		"ACopyPivotedInAPauseLeavesTheGuestItsLeases":   testLeasesOfACopy,
		"ACommitPivotedInAPauseLeavesTheGuestItsLeases": testLeasesOfACommit,
		"ACommitIsMadeAfterAnAbortedOne":                testLeasesOfAnAbortedCommit,
		"ACopyThatBeganInAPauseIsPivoted":               testLeasesOfAHeldCopy,
		"AnAbortedCommitLeavesItsBaseToOthers":          testLeasesAfterAnAbortedCommit,
		"AGuestThatItsOwnerHasSuspendedIsSwitched":      testLeasesOfASuspendedGuest,
		"ADiskIsPluggedIntoASuspendedGuest":             testLeasesOfAHotPlug,
		"AGuestIsResumedOnceNobodyElseHasItsLease":      testLeasesElsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			test(t, startLeased(t, env, false))
			if name == "ACopyPivotedInAPauseLeavesTheGuestItsLeases" {
				t.Run("shareable", func(t *testing.T) { test(t, startLeased(t, env, true)) })
			}
		})
	}
}

// leasedGuest is a guest with unchanged disks before and after vda.
type leasedGuest struct {
	*guest
	env     LeaseEnv
	others  []hv.Image
	overlay hv.Image
}

func startLeased(t *testing.T, env LeaseEnv, shareable bool) *leasedGuest {
	t.Helper()
	b := &bench{Env: env, hv: env.Hypervisor()}
	src := b.image(t, "src.raw", Raw)
	id := b.define(t, func(d *hv.Disk) { d.Shareable = shareable }, src)
	g := &leasedGuest{guest: &guest{bench: b, id: id, src: src}, env: env}
	for _, target := range []string{"vdc", "sda"} { // sda comes first, because of its bus
		spec := b.spec(t, target)
		if target == "sda" {
			spec.Bus = "sata"
		}
		b.attach(t, id, hv.Config, spec)
	}
	b.Start(t, id)
	for _, d := range g.domain(t).Live {
		if d.Target != "vda" && d.Top().Path != "" {
			g.others = append(g.others, d.Top())
		}
	}
	g.wantLeased(t, src)
	return g
}

func (g *leasedGuest) wantLeased(t *testing.T, top hv.Image, unleased ...hv.Image) {
	t.Helper()
	for _, img := range append(slices.Clone(g.others), top) {
		if !g.env.Leased(t, img.Path) {
			t.Errorf("the guest runs without the lease of %s", img.Path)
		}
	}
	for _, img := range unleased {
		if g.env.Leased(t, img.Path) {
			t.Errorf("the guest has the lease of %s", img.Path)
		}
	}
}

func (g *leasedGuest) over(t *testing.T) {
	t.Helper()
	g.overlay = g.bench.overlay(t, g.src)
	ok(t, g.putOverlay(t.Context(), g.id, "vda", g.overlay))
	g.wantLeased(t, g.overlay, g.src)
}

// pivot pivots a job to an image with the guest suspended, and resumes it.
func (g *leasedGuest) pivot(t *testing.T, to hv.Image, left ...hv.Image) {
	t.Helper()
	ctx := t.Context()
	kind := g.domain(t).LiveDisk("vda").Mirror.Job
	g.awaitReady(t, kind, to)
	ok(t, g.hv.Suspend(ctx, g.id))
	g.awaitDrained(t)
	ok(t, g.hv.Pivot(ctx, g.id, "vda"))
	g.wantUnleased(t, to)
	g.env.OwnerResumes(t, g.id)
	g.wantRunning(t)
	g.wantLeased(t, to, left...)
	for range 2 {
		ok(t, g.hv.Suspend(ctx, g.id))
		g.wantUnleased(t, to)
		ok(t, g.hv.Resume(ctx, g.id))
		g.wantLeased(t, to, left...)
	}
	if !g.domain(t).LiveDisk("vda").Shareable {
		stranger := g.define(t, nil, to)
		if err := g.hv.PowerOn(ctx, stranger); err == nil {
			t.Errorf("another domain was started on %s, of which the guest has the lease", to.Path)
		}
	}
	ok(t, g.hv.PowerOff(ctx, g.id))
	if g.env.Leased(t, to.Path) {
		t.Errorf("the lease of %s outlives its guest", to.Path)
	}
	ok(t, g.hv.PowerOn(ctx, g.id))
	g.wantLeased(t, to, left...)
}

func (g *leasedGuest) wantUnleased(t *testing.T, top hv.Image) {
	t.Helper()
	for _, img := range append(slices.Clone(g.others), top) {
		if g.env.Leased(t, img.Path) {
			t.Errorf("the suspended guest has the lease of %s", img.Path)
		}
	}
}

func (g *leasedGuest) wantRunning(t *testing.T) {
	t.Helper()
	if diff := cmp.Diff(hv.StateRunning, g.domain(t).State); diff != "" {
		t.Errorf("state of the guest (-want +got):\n%s", diff)
	}
}

func (g *leasedGuest) copyTo(t *testing.T, dst hv.Image) {
	t.Helper()
	ok(t, g.hv.BlockCopy(t.Context(), g.id, "vda", dst, hv.BlockCopyOptions{Shallow: g.overlay.Path != ""}))
}

func testLeasesOfACopy(t *testing.T, g *leasedGuest) {
	dst := g.image(t, "dst.raw", Raw)
	if !g.domain(t).LiveDisk("vda").Shareable { // libvirt puts no overlay over such a disk
		g.over(t)
	}
	g.copyTo(t, dst)
	g.pivot(t, dst, g.src)
}

func testLeasesOfAHeldCopy(t *testing.T, g *leasedGuest) {
	g.over(t)
	dst := g.image(t, "dst.raw", Raw)
	ok(t, g.hv.Suspend(t.Context(), g.id))
	g.copyTo(t, dst)
	ok(t, g.hv.Resume(t.Context(), g.id))
	g.wantLeased(t, g.overlay)
	g.pivot(t, dst, g.src)
}

func testLeasesOfACommit(t *testing.T, g *leasedGuest) {
	g.over(t)
	ok(t, g.hv.CommitActive(t.Context(), g.id, "vda", 0))
	g.pivot(t, g.src)
}

func testLeasesOfAnAbortedCommit(t *testing.T, g *leasedGuest) {
	g.over(t)
	for range 2 {
		ok(t, g.hv.CommitActive(t.Context(), g.id, "vda", 0))
		g.awaitReady(t, hv.JobActiveCommit, g.src)
		ok(t, g.hv.AbortJob(t.Context(), g.id, "vda"))
		g.wantLeased(t, g.overlay)
	}
	ok(t, g.hv.CommitActive(t.Context(), g.id, "vda", 0))
	g.pivot(t, g.src)
}

func testLeasesAfterAnAbortedCommit(t *testing.T, g *leasedGuest) {
	g.over(t)
	ok(t, g.hv.CommitActive(t.Context(), g.id, "vda", 0))
	g.awaitReady(t, hv.JobActiveCommit, g.src)
	ok(t, g.hv.AbortJob(t.Context(), g.id, "vda"))
	g.wantLeased(t, g.overlay, g.src)
	dst := g.image(t, "dst.raw", Raw)
	g.copyTo(t, dst)
	g.pivot(t, dst, g.src, g.overlay)
}

func testLeasesOfASuspendedGuest(t *testing.T, g *leasedGuest) {
	ctx := t.Context()
	ok(t, g.hv.Suspend(ctx, g.id))
	g.overlay = g.bench.overlay(t, g.src)
	ok(t, g.putOverlay(ctx, g.id, "vda", g.overlay))
	g.wantUnleased(t, g.overlay)
	g.env.OwnerResumes(t, g.id)
	g.wantLeased(t, g.overlay, g.src)
	ok(t, g.hv.Suspend(ctx, g.id))
	dst := g.image(t, "dst.raw", Raw)
	g.copyTo(t, dst)
	g.pivot(t, dst, g.src, g.overlay)
}

func testLeasesOfAHotPlug(t *testing.T, g *leasedGuest) {
	ok(t, g.hv.Suspend(t.Context(), g.id))
	spec := g.spec(t, "sdb")
	spec.Bus = "scsi"
	g.attach(t, g.id, hv.Live, spec)
	g.wantUnleased(t, spec.Image)
	g.env.OwnerResumes(t, g.id)
	g.wantLeased(t, spec.Image)
	g.wantLeased(t, g.src)
}

func testLeasesElsewhere(t *testing.T, g *leasedGuest) {
	ctx := t.Context()
	for _, img := range append(slices.Clone(g.others), g.src) {
		ok(t, g.hv.Suspend(ctx, g.id))
		end := g.env.LeaseElsewhere(t, img.Path)
		for range 2 {
			if err := g.hv.Resume(ctx, g.id); !errors.Is(err, hv.ErrBusy) {
				t.Errorf("want ErrBusy, got %v", err)
			}
		}
		end()
		ok(t, g.hv.Resume(ctx, g.id))
		g.wantRunning(t)
		g.wantLeased(t, g.src)
	}
	ok(t, g.hv.Suspend(ctx, g.id))
	g.wantUnleased(t, g.src)
}
