// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// refusesToMove claims that a move of the guest's disk is refused with this
// code, made in one go or step by step, and that nothing was changed by that.
func (g *guest) refusesToMove(t *testing.T, target string, code api.Code, args ...string) api.Error {
	t.Helper()
	return g.failsToMove(t, target, code.ExitStatus(), code, args...)
}

// failsToMove is refusesToMove with this exit status: that of an op that has begun where it takes
// one to see what is refused.
func (g *guest) failsToMove(t *testing.T, target string, exit int, code api.Code, args ...string) api.Error {
	t.Helper()
	before, slots := g.volume(t, target), g.persistentSlots(t)
	e := g.host.fails(t, exit, code, append([]string{"volume", "migrate", g.volumeName(target)}, args...)...)
	g.host.fails(t, exit, code, append([]string{"migration", "start", before.Attachments[0].ID}, args...)...)
	if diff := cmp.Diff(before, g.volume(t, target)); diff != "" {
		t.Errorf("the volume changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(slots, g.persistentSlots(t)); diff != "" {
		t.Errorf("the definition changed (-before +after):\n%s", diff)
	}
	g.assertNoLeftovers(t, g.state(t))
	return e
}

func TestDestinationOfAnotherSizeIsRefused(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	for _, size := range []struct {
		bytes int64
		words string
	}{
		{volumeBytes - 512, "512 bytes smaller"},
	} {
		t.Run(size.words, func(t *testing.T) {
			file := filepath.Join(b, fmt.Sprintf("%d.raw", size.bytes))
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(file, size.bytes); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{file, h.device(t, b, size.bytes).Path} {
				e := g.refusesToMove(t, "vda", api.CodeSizeMismatch, "--to-path", path)
				mustContain(t, e.Message, path, size.words)
			}
		})
	}
	g.assertSettled(t)
}

func TestDestinationThatIsNotFreeIsRefused(t *testing.T) {
	h, a, b := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	other := h.stoppedGuest(t, h.diskIn(t, b, api.FormatRaw))
	path := other.disks[0].Path

	e := g.refusesToMove(t, "vda", api.CodeDstInUse, "--to-path", path)
	mustContain(t, e.Message, path, other.Name)
	t.Run("by another name", func(t *testing.T) {
		link := filepath.Join(b, "link.raw")
		if err := os.Link(path, link); err != nil {
			t.Fatal(err)
		}
		g.refusesToMove(t, "vda", api.CodeDstInUse, "--to-path", link)
	})
	t.Run("a link in a pool of files", func(t *testing.T) {
		link := filepath.Join(b, "symlink.raw")
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		e := g.refusesToMove(t, "vda", api.CodePermissionDenied, "--to-path", link)
		mustContain(t, e.Message, link+" leads to "+path+" by the symbolic link "+link)
	})
	t.Run("the file of a device", func(t *testing.T) {
		loop := h.device(t, b, volumeBytes)
		e := g.refusesToMove(t, "vda", api.CodeDstInUse, "--to-path", loop.File)
		mustContain(t, e.Message, loop.Path)
	})
	t.Run("a volume that is not attached", func(t *testing.T) {
		free := h.diskIn(t, b, api.FormatRaw)
		h.ctl(t, "volume", "adopt", "free", "--path", free.Path, "--format", "raw")
		g.refusesToMove(t, "vda", api.CodeDstInUse, "--to-path", free.Path)
		alias := filepath.Join(b, "alias.raw")
		if err := os.Link(free.Path, alias); err != nil {
			t.Fatal(err)
		}
		e := g.refusesToMove(t, "vda", api.CodeDstInUse, "--to-path", alias)
		mustContain(t, e.Message, alias, "volume free")
	})
	t.Run("the destination of another move", func(t *testing.T) {
		dst := filepath.Join(b, "dst.raw")
		v := other.start(t, "vda", "--to-path", dst)
		h.refuses(t, api.CodeDstInUse, "volume", "migrate", g.volumeName("vda"), "--to-path", dst)
		v.cancel(t)
	})
	g.assertSettled(t)
	other.assertSettled(t)
}

func TestDestinationThatMakesNoSenseIsRefused(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	device := h.device(t, b, volumeBytes).Path
	for _, c := range []struct {
		name string
		code api.Code
		args []string
	}{
		{"the pool that it is in", api.CodeSameLocation, []string{"--to-pool", "a"}},
		{"the path that it is at", api.CodeSameLocation, []string{"--to-path", g.disks[0].Path}},
		{"a pool that is not there", api.CodeNotFound, []string{"--to-pool", "nowhere"}},
		{"a directory that is not there", api.CodeInvalidArgument, []string{"--to-path", "/nonexistent/dir/vol.raw"}},
		{"a directory", api.CodeInvalidArgument, []string{"--to-path", b}},
		{"a relative path", api.CodeInvalidArgument, []string{"--to-path", "vol.raw"}},
		{"where the system lives", api.CodePermissionDenied, []string{"--to-path", "/etc/vol.raw"}},
		{"a device that is too small for a full qcow2 image", api.CodeSizeMismatch, []string{"--to-path", device, "--to-format", "qcow2"}},
		{"a format that is not there", api.CodeInvalidArgument, []string{"--to-pool", "b", "--to-format", "vmdk"}},
		{"nowhere", api.CodeInvalidArgument, nil},
		{"two places", api.CodeInvalidArgument, []string{"--to-pool", "b", "--to-path", filepath.Join(b, "vol.raw")}},
		{"deleting a source whose copy nobody checked", api.CodeInvalidArgument, []string{"--to-pool", "b", "--delete-source", "--verify", "none"}},
	} {
		t.Run(c.name, func(t *testing.T) { g.refusesToMove(t, "vda", c.code, c.args...) })
	}
	t.Run("names that are not there", func(t *testing.T) {
		h.refuses(t, api.CodeNotFound, "volume", "migrate", "nobody", "--to-pool", "b")
		h.refuses(t, api.CodeNotFound, "migration", "start", "00000000-0000-4000-8000-000000000000", "--to-pool", "b")
		h.refuses(t, api.CodeNotFound, "instance", "adopt", "nobody")
		h.refuses(t, api.CodeNotFound, "migration", "show", "00000000-0000-4000-8000-000000000000")
	})
	g.assertSettled(t)
}
