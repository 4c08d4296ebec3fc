// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
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

// isClone says of what looks like an overlay that it is a clone of cloneIn, one that was moved and
// has kept its base images, or one on a device, where no overlay of a move ever is.
func (h *host) isClone(leftover string) bool {
	_, path, overlay := strings.Cut(leftover, " has an overlay on ")
	_, path, _ = strings.Cut(path, ": ")
	return overlay && (strings.Contains(path, "/clone-") || strings.HasPrefix(path, "/dev/") || h.clones[path])
}

// basePaths are the paths of the base images of a volume, the nearest first.
func basePaths(l api.Location) (paths []string) {
	for _, img := range l.Backing.Images() {
		paths = append(paths, img.Path)
	}
	return paths
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
	named := basePaths(g.volume(t, "vda").Location)
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
	h.migrateUnattached(t, clone, "--to-pool", "b", "--to-format", "raw")
	same()
	h.ctl(t, "volume", "delete", "data", "--yes")
	same()
}

// A device has no base images, and no holes: it gets all that the clone reads.
func TestLinkedCloneOnADeviceIsAVolumeOfItsOwn(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	first, second := h.device(t, a, volumeBytes), h.device(t, a, volumeBytes)
	base := h.diskIn(t, b, api.FormatRaw)
	clone, bases := h.cloneIn(t, a, base)
	lone, _ := h.cloneIn(t, a, base)
	same := unchanged(t, bases)
	for _, device := range []*lab.Loop{first, second} {
		tool(t, "dd", "if=/dev/urandom", "of="+device.Path, "bs=1M", "conv=fsync", fmt.Sprintf("count=%d", volumeBytes>>20), "status=none")
	}
	h.ctl(t, "volume", "adopt", "data", "--path", lone.Path, "--format", "qcow2")
	h.migrateUnattached(t, lone, "--to-path", second.Path, "--to-format", "raw")
	h.ctl(t, "volume", "delete", "data", "--yes")

	g := h.runningGuest(t, clone)
	v := g.start(t, "vda", "--to-path", first.Path, "--to-format", "raw")
	g.writes(t)
	v.copy(t)
	g.writes(t)
	v.complete(t)
	if l := g.volume(t, "vda").Location; l.Path != first.Path || l.IsLinkedClone() {
		t.Errorf("the volume is at %+v", l)
	}
	same()
	g.assertSettled(t)
	same()
}

// takenBytes is the space that a file takes.
func takenBytes(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// What the clone has of its own goes, and its base images stay below it.
func TestLinkedCloneOfARunningGuestKeepsItsBaseImages(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	clone, bases := h.cloneIn(t, a, h.diskIn(t, b, api.FormatRaw))
	same := unchanged(t, bases)
	g := h.runningGuest(t, clone)
	kept := func(t *testing.T) {
		t.Helper()
		same()
		l := g.volume(t, "vda").Location
		named := basePaths(l)
		if l.Format != api.FormatQcow2 || !slices.Equal(named, bases) {
			t.Errorf("the volume is %+v, over %v, want %v", l, named, bases)
		}
	}
	if major, minor := lab.QEMUVersion(t); major > 9 || major == 9 && minor >= 1 {
		t.Run("refused, since its QEMU may leave out zeros", func(t *testing.T) {
			g.refusesToMove(t, "vda", api.CodeUnsupportedDisk, "--to-pool", "b", "--keep-base")
			kept(t)
		})
	} else {
		t.Run("cancelled", func(t *testing.T) {
			v := g.start(t, "vda", "--to-pool", "b", "--keep-base")
			g.writes(t)
			v.copy(t)
			v.cancel(t)
			kept(t)
			g.assertSettledAndGoOn(t)
		})
		t.Run("into a pool", func(t *testing.T) {
			v := g.start(t, "vda", "--to-pool", "b", "--keep-base", "--delete-source")
			g.writes(t)
			v.copy(t)
			g.writes(t)
			v.finish(t)
			kept(t)
			g.assertSettledAndGoOn(t)
		})
		t.Run("killed in the copy, to a path", func(t *testing.T) {
			v := g.start(t, "vda", "--to-path", filepath.Join(a, "moved.qcow2"), "--keep-base", "--bandwidth", "1MiB/s")
			g.writes(t)
			v.copyThroughDeath(t)
			v.finish(t)
			kept(t)
			g.assertSettledAndGoOn(t)
		})
	}
	t.Run("off", func(t *testing.T) {
		g.powerOff(t)
		v := g.start(t, "vda", "--to-pool", "b", "--keep-base")
		v.copy(t)
		g.boot(t)
		g.writes(t)
		g.powerOff(t)
		v.finish(t)
		kept(t)
	})
	g.boot(t)
	g.assertSettled(t)
	same()
}

func TestLinkedCloneThatIsNotAttachedKeepsItsBaseImages(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	base := h.diskIn(t, b, api.FormatQcow2)
	clone, bases := h.cloneIn(t, a, base)
	same := unchanged(t, bases)
	h.ctl(t, "volume", "adopt", "data", "--path", clone.Path, "--format", "qcow2")
	plan := h.ctl(t, "volume", "migrate", "data", "--to-pool", "b", "--keep-base", "--dry-run")
	mustContain(t, plan, "over the base images of the volume")
	for _, c := range []struct {
		code api.Code
		args []string
	}{
		{api.CodeInvalidArgument, []string{"--to-pool", "b", "--to-format", "raw"}},
		{api.CodeInvalidArgument, []string{"--to-pool", "b", "--method", "mirror"}},
		{api.CodeInvalidArgument, []string{"--to-pool", "b", "--external-copy"}},
		{api.CodeInvalidArgument, []string{"--to-path", h.device(t, a, volumeBytes).Path}},
	} {
		h.refuses(t, c.code, append([]string{"volume", "migrate", "data", "--keep-base"}, c.args...)...)
	}
	m := h.migrateUnattached(t, clone, "--to-pool", "b", "--keep-base")
	if m.Dst.Backing != m.Src.Backing {
		t.Errorf("the volume is over %s, want %s", m.Dst.Backing, m.Src.Backing)
	}
	same()
	if own, whole := takenBytes(t, m.Dst.Path), takenBytes(t, bases[1]); own > whole/2 {
		t.Errorf("the clone takes %d bytes, of which it has none itself, and its base image %d", own, whole)
	}
	e := h.refuses(t, api.CodeConflict, "volume", "adopt", "theirs", "--path", bases[1], "--format", "qcow2")
	mustContain(t, e.Message, "base image of volume data")
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
