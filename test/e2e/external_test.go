// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// tool runs a program as a user would who makes the copy.
func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// dd copies one image into another that is there.
func dd(t *testing.T, src, dst string) {
	t.Helper()
	tool(t, "dd", "if="+src, "of="+dst, "bs=1M", "conv=notrunc,fsync", "status=none")
}

func TestCopyMayBeMadeByAnyTool(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	t.Run("dd, announced", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", "b", "--external-copy")
		dd(t, v.Src.Path, v.Dst.Path)
		v.complete(t)
		g.assertSettledAndGoOn(t)
	})
	t.Run("cp, not announced", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", "a")
		tool(t, "cp", "--sparse=always", v.Src.Path, v.Dst.Path)
		v.complete(t)
		g.assertSettledAndGoOn(t)
	})
	t.Run("dd, not compared", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", "b", "--external-copy", "--verify", "none")
		dd(t, v.Src.Path, v.Dst.Path)
		v.complete(t)
		g.assertSettledAndGoOn(t)
	})
	t.Run("qemu-img, into another format", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", "a", "--to-format", "qcow2", "--external-copy")
		tool(t, "qemu-img", "convert", "-n", "-f", "raw", "-O", "qcow2", v.Src.Path, v.Dst.Path)
		v.complete(t)
		g.assertSettled(t)
	})
}

// pokeByte changes one byte of a file or device.
func pokeByte(t *testing.T, path string, offset int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, offset); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, offset); err != nil {
		t.Fatal(err)
	}
}

func TestCopyWithOneWrongByteIsFoundAndHarmsNobody(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b", "--external-copy", "--delete-source")
	dd(t, v.Src.Path, v.Dst.Path)
	const wrong = 33<<20 + 4711
	pokeByte(t, v.Dst.Path, wrong)

	e := h.fails(t, api.ExitOpFailed, api.CodeCopyMismatch, v.completeArgs()...)
	if got := fmt.Sprint(e.Details["offset"]); got != fmt.Sprint(float64(wrong)) {
		t.Errorf("offset %v in %q, want %d", got, e.Message, wrong)
	}
	mustContain(t, e.Message, fmt.Sprint(wrong))
	g.writes(t)
	v.assertFrozen(t)
	if m := get[api.Migration](t, h, "migration", "migration", "show", v.ID); m.State != api.MigrationStarted || m.Error == nil {
		t.Errorf("the migration is %s with error %v; it must be open, to be mended or cancelled", m.State, m.Error)
	}

	// Mended, it goes through; the source is deleted only now.
	pokeByte(t, v.Dst.Path, wrong)
	v.complete(t)
	g.assertSettledAndGoOn(t)

	t.Run("one that is not mended is cancelled", func(t *testing.T) {
		leftToTestE2E(t)
		v := g.start(t, "vda", "--to-pool", "a", "--external-copy")
		dd(t, v.Src.Path, v.Dst.Path)
		pokeByte(t, v.Dst.Path, 0)
		h.fails(t, api.ExitOpFailed, api.CodeCopyMismatch, v.completeArgs()...)
		v.cancel(t)
	})
	g.assertSettled(t)
}
