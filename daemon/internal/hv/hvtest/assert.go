// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// AssertClean fails the test if an operation has left something: a block job, a domain that is
// paused though no person paused it, a write limit, an overlay that no domain uses. It also fails
// the test if a rule was ever violated (see the calls of violate).
func (f *Fake) AssertClean(tb testing.TB) {
	tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.violations {
		tb.Errorf("violation: %s", v)
	}
	used := make(map[string]bool)
	for _, id := range slices.Sorted(maps.Keys(f.domains)) {
		dom := f.domains[id]
		for target, j := range dom.jobs {
			tb.Errorf("domain %s: a %s job is left on %s", dom.Name, j.kind, target)
		}
		if dom.State == hv.StatePaused && dom.PauseReason == hv.PauseUser && !dom.byUser {
			tb.Errorf("domain %s: left paused", dom.Name)
		}
		for target, limit := range dom.limits {
			if own := dom.ownLimits[target]; limit != own && dom.State.Active() {
				tb.Errorf("domain %s: the writes of %s are left limited to %d, and its owner has set %d", dom.Name, target, limit, own)
			}
		}
		for _, disk := range slices.Concat(dom.Live, dom.Config, dom.saved) {
			for _, img := range disk.Chain {
				used[img.Path] = true
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(f.files)) {
		if f.files[path].backing.Path != "" && !used[path] && !f.clones[path] {
			tb.Errorf("overlay %s is left and no domain uses it", path)
		}
	}
}

// IsClone marks a qcow2 image as a volume's linked clone, which AssertClean accepts.
func (f *Fake) IsClone(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clones == nil {
		f.clones = map[string]bool{}
	}
	f.clones[path] = true
}

// AssertNoWriteLost fails the test if a disk of any domain lacks an acknowledged write of its
// guest. It omits shareable disks, which other guests write to.
func (f *Fake) AssertNoWriteLost(tb testing.TB) {
	tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(f.domains)) {
		for target, acked := range f.domains[id].acked {
			if f.domains[id].shareable(target) {
				continue
			}
			want := maps.Clone(acked)
			maps.DeleteFunc(want, func(_ int64, value uint64) bool { return value == 0 })
			got, err := f.authoritative(id, target)
			if err != nil {
				tb.Errorf("domain %s: read disk %s: %v", id, target, err)
				continue
			}
			if diff := cmp.Diff(want, got); diff != "" {
				tb.Errorf("domain %s: content of %s (-acknowledged +stored):\n%s", id, target, diff)
			}
		}
	}
}

func (d *domain) shareable(target string) bool {
	disk := d.LiveDisk(target)
	if disk == nil {
		disk = d.ConfigDisk(target)
	}
	return disk != nil && disk.Shareable
}
