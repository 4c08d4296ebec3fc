// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/kinds"
	"github.com/volferry/volferry/test/lab"
)

// cloneIn makes a linked clone of a filled volume in a directory, and a clone of that, which is
// the disk. The definition leaves the chain to the headers, as those of virt-install do.
func (h *host) cloneIn(t *testing.T, dir string, base lab.Disk) (clone lab.Disk, bases []string) {
	t.Helper()
	n := h.number()
	clone = base
	clone.Serial, clone.Seed, clone.OpenEnd = fmt.Sprintf("serial-%d", n), uint64(n), true
	middle := filepath.Join(dir, fmt.Sprintf("middle-%d.qcow2", n))
	clone.Path, clone.Format = filepath.Join(dir, fmt.Sprintf("clone-%d.qcow2", n)), "qcow2"
	tool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", base.Format, "-b", base.Path, middle)
	tool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", filepath.Base(middle), clone.Path)
	return clone, []string{middle, base.Path}
}

// isClone says of what looks like an overlay that it is a clone of cloneIn, or one on a device, where no
// overlay of a move ever is.
func isClone(leftover string) bool {
	return strings.Contains(leftover, " has an overlay on ") && (strings.Contains(leftover, "/clone-") || strings.Contains(leftover, ": /dev/"))
}

// unchanged claims at the end of the test that images have not changed by a byte until then.
func unchanged(t *testing.T, paths []string) (check func()) {
	t.Helper()
	sums := func() (sums []string) {
		for _, path := range paths {
			sums = append(sums, sumOf(t, path))
		}
		return sums
	}
	before := sums()
	return func() {
		t.Helper()
		if diff := cmp.Diff(before, sums()); diff != "" {
			t.Errorf("base images changed (-before +after):\n%s", diff)
		}
	}
}

func TestLinkedCloneOfARunningGuestBecomesAVolumeOfItsOwn(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	base := h.diskIn(t, b, api.FormatRaw)
	clone, bases := h.cloneIn(t, a, base)
	same := unchanged(t, bases)
	g := h.runningGuest(t, clone)
	var named []string
	for _, img := range g.volume(t, "vda").Location.Backing.Images() {
		named = append(named, img.Path)
	}
	if !slices.Equal(named, bases) {
		t.Fatalf("the volume is over %v, want %v", named, bases)
	}
	// Back first: what the guest wrote meanwhile goes into the clone and no deeper.
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	v.copy(t)
	v.cancel(t)
	same()
	g.assertSettledAndGoOn(t)
	same()

	v = g.start(t, "vda", "--to-pool", "b", "--to-format", "raw", "--delete-source")
	g.writes(t)
	v.copy(t)
	g.writes(t)
	v.finish(t)
	if got := g.volume(t, "vda").Location; got.Backing != "" || got.Path != v.Dst.Path {
		t.Errorf("the volume is at %+v", got)
	}
	same()
	for _, path := range bases {
		if !exists(t, path) {
			t.Errorf("%s was deleted with a clone of it", path)
		}
	}
	g.assertSettled(t)
}

func TestLinkedCloneOfAStoppedGuestIsMovedAndCancelled(t *testing.T) {
	h, a, b := sharedPools(t)
	base := h.diskIn(t, b, api.FormatQcow2)
	clone, bases := h.cloneIn(t, a, base)
	same := unchanged(t, bases)
	g := h.stoppedGuest(t, clone)
	v := g.start(t, "vda", "--to-pool", "b")
	v.cancel(t)
	same()
	t.Run("cancelled", g.assertSettled)
	g.migrate(t, "vda", "--to-pool", "a") // its own pool: it becomes a volume of its own there
	same()
	if got := g.volume(t, "vda").Location; got.Backing != "" {
		t.Errorf("the volume is at %+v", got)
	}
	g.assertSettled(t)
}

func TestLinkedCloneThatIsNotAttachedIsMoved(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	base := h.diskIn(t, b, api.FormatRaw)
	clone, bases := h.cloneIn(t, a, base)
	same := unchanged(t, bases)
	h.ctl(t, "volume", "adopt", "data", "--path", clone.Path, "--format", "qcow2")
	e := h.refuses(t, api.CodeConflict, "volume", "adopt", "theirs", "--path", bases[1], "--format", "raw")
	mustContain(t, e.Message, "base image of volume data")
	e = h.refuses(t, api.CodeDstInUse, "volume", "migrate", "data", "--to-path", bases[1], "--to-format", "raw")
	mustContain(t, e.Message, "base image of volume data")
	m := get[api.Migration](t, h, "migration", "volume", "migrate", "data", "--to-pool", "b", "--to-format", "raw")
	if m.State != api.MigrationCompleted {
		t.Fatalf("ended as %s: %+v", m.State, m)
	}
	h.noteMove(t, m, kinds.NoGuest)
	same()
	h.assertUnattached(t, lab.Disk{Seed: clone.Seed, Fill: base.Fill}, m.Dst)
	h.ctl(t, "volume", "delete", "data", "--yes")
	same()
}

func TestLinkedCloneWhoseHeaderWasChangedIsNotMoved(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	base, other := h.diskIn(t, b, api.FormatRaw), h.diskIn(t, b, api.FormatRaw)
	clone, bases := h.cloneIn(t, a, base)
	g := h.stoppedGuest(t, clone)
	tool(t, "qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", other.Path, bases[0])
	e := g.refusesToMove(t, "vda", api.CodeChainChanged, "--to-pool", "b")
	mustContain(t, e.Message, other.Path, base.Path)
	tool(t, "qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", base.Path, bases[0])
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
}
