// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

func TestRunningGuestKeepsEveryWriteWhateverTheFormats(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	for i, to := range moves {
		from := g.volume(t, "vda").Location.Format
		t.Run(string(from)+" to "+string(to.format), func(t *testing.T) {
			if i > 0 {
				leftToTestE2E(t)
			}
			v := g.start(t, "vda", "--to-pool", to.pool, "--to-format", string(to.format))
			g.writes(t)
			v.copy(t)
			g.writes(t)
			v.complete(t)
			if got := g.volume(t, "vda").Location; got.Pool != to.pool || got.Format != to.format {
				t.Errorf("the volume is at %+v", got)
			}
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}

func TestRunningGuestMovesBetweenFilesAndDevices(t *testing.T) {
	leftToTestE2E(t)
	h := sharedHost(t)
	a := h.fsPool(t, "ext4", "ext4", 400)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	first, second := h.device(t, a, volumeBytes), h.device(t, a, volumeBytes)
	for _, step := range []struct {
		name string
		to   []string
	}{
		{"file to device", []string{"--to-path", first.Path}},
		{"device to device", []string{"--to-path", second.Path}},
		{"device to file", []string{"--to-pool", "ext4"}},
		{"file to a new path", []string{"--to-path", filepath.Join(a, "by-path.raw")}},
	} {
		t.Run(step.name, func(t *testing.T) {
			m := g.migrate(t, "vda", step.to...)
			if got := g.volume(t, "vda").Location.Path; got != m.Dst.Path {
				t.Errorf("the volume is at %s, the migration went to %s", got, m.Dst.Path)
			}
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}

// A clone shares its extents with the source, a copy has its own.
func TestFilesOnOneFileSystemThatCanAreCloned(t *testing.T) {
	leftToTestE2E(t)
	h := sharedHost(t)
	x := h.fsPool(t, "x", "xfs", 400)
	e := h.fsPool(t, "e", "ext4", 400)
	g := h.runningGuest(t, h.diskIn(t, x, api.FormatRaw))

	v := g.start(t, "vda", "--to-path", filepath.Join(x, "cloned.raw"))
	free := freeBytes(t, x)
	v.copy(t)
	if used := free - freeBytes(t, x); used > volumeBytes/20 {
		t.Errorf("a copy within xfs took %d bytes of space: it was not cloned", used)
	}
	v.complete(t)
	g.assertSettledAndGoOn(t)

	v = g.start(t, "vda", "--to-pool", "e")
	free = freeBytes(t, e)
	v.copy(t)
	if used := free - freeBytes(t, e); used < volumeBytes/5 {
		t.Errorf("a copy from xfs to ext4 took %d bytes of space: it was not copied", used)
	}
	v.complete(t)
	g.assertSettled(t)
}

func TestTwoDisksOfAGuestMoveAtTheSameTime(t *testing.T) {
	leftToTestE2E(t)
	if lab.Confined() {
		t.Skip("SKIPPED: the volumes of a confined guest move one after the other")
	}
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw), h.diskIn(t, a, api.FormatQcow2))
	ended := make(chan error, len(g.disks))
	for i := range g.disks {
		go func() {
			_, err := h.Ctl(t.Context(), "volume", "migrate", g.volumeName(target(i)), "--to-pool", "b")
			ended <- err
		}()
	}
	for range g.disks {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for i := range g.disks {
		if got := g.volume(t, target(i)).Location.Pool; got != "b" {
			t.Errorf("disk %s is in pool %s, want b", target(i), got)
		}
	}
	g.assertSettledAndGoOn(t)

	// One alone, and the other stays where it is.
	g.migrate(t, "vdb", "--to-pool", "a")
	if got := g.volume(t, "vda").Location.Pool; got != "b" {
		t.Errorf("vda went along to pool %s", got)
	}
	g.assertSettled(t)
}
