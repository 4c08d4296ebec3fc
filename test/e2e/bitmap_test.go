// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// A backup program makes a dirty bitmap of a disk with its full backup, and copies later what was
// written since.

// printed runs a tool, which must succeed, and returns what it printed.
func printed(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return string(out)
}

// bitmapsOf returns the dirty bitmaps of an image that nobody has open.
func bitmapsOf(t *testing.T, path string) (names []string) {
	t.Helper()
	var info struct {
		Specific struct {
			Data struct {
				Bitmaps []struct {
					Name string `json:"name"`
				} `json:"bitmaps"`
			} `json:"data"`
		} `json:"format-specific"`
	}
	if err := json.Unmarshal([]byte(printed(t, "qemu-img", "info", "--output=json", path)), &info); err != nil {
		t.Fatal(err)
	}
	for _, b := range info.Specific.Data.Bitmaps {
		names = append(names, b.Name)
	}
	return names
}

// wantBitmaps claims which dirty bitmaps an image has that nobody has open.
func wantBitmaps(t *testing.T, path string, want ...string) {
	t.Helper()
	if got := bitmapsOf(t, path); !slices.Equal(got, want) {
		t.Errorf("%s has the bitmaps %v, want %v", path, got, want)
	}
}

// removesBitmap types the command of virsh that a message has.
func (g *guest) removesBitmap(t *testing.T, message string) {
	t.Helper()
	_, command, found := strings.Cut(message, "`virsh qemu-monitor-command "+g.Name+" '")
	command, _, closed := strings.Cut(command, "'`")
	if !found || !closed {
		t.Fatalf("no command in %q", message)
	}
	mustContain(t, g.host.virsh(t, "qemu-monitor-command", g.Name, command), `"return":{}`)
}

// restoresIncremental writes what a dirty bitmap of an image, which nobody has open, says was
// written over the full backup.
func restoresIncremental(t *testing.T, full, path, bitmap string) {
	t.Helper()
	now := filepath.Join(t.TempDir(), "now.raw")
	tool(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", path, now)
	socket := filepath.Join(t.TempDir(), "nbd")
	server := exec.CommandContext(t.Context(), "qemu-nbd", "--read-only", "--format", "qcow2", "--bitmap", bitmap, "--persistent", "--socket", socket, path)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	eventually(t, "the server listens", func() bool { // the socket is there before
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
		return err == nil && conn.Close() == nil
	})
	var ranges []struct {
		Start, Length int64
		Data          bool
	}
	options := fmt.Sprintf("driver=nbd,server.type=unix,server.path=%s,x-dirty-bitmap=qemu:dirty-bitmap:%s", socket, bitmap)
	if err := json.Unmarshal([]byte(printed(t, "qemu-img", "map", "--output=json", "--image-opts", options)), &ranges); err != nil {
		t.Fatal(err)
	}
	from, err := os.ReadFile(now)
	if err != nil {
		t.Fatal(err)
	}
	into, err := os.ReadFile(full)
	if err != nil {
		t.Fatal(err)
	}
	written := int64(0)
	for _, r := range ranges {
		if !r.Data { // which is how QEMU shows what is dirty
			written += int64(copy(into[r.Start:r.Start+r.Length], from[r.Start:]))
		}
	}
	for at := range from {
		if from[at] != into[at] {
			t.Fatalf("the full backup and the incremental one differ from the disk at byte %d", at)
		}
	}
	if written == 0 || written == int64(len(from)) {
		t.Errorf("the incremental backup has %d of %d bytes", written, len(from))
	}
}

func TestAnIncrementalBackupIsRightAfterAMoveOrTheMoveIsRefused(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	d := h.diskIn(t, a, api.FormatQcow2)
	g := h.defineGuest(t, d)
	g.boot(t)
	g.adopt(t)
	g.writes(t)
	g.powerOff(t)
	full := filepath.Join(t.TempDir(), "full.raw")
	tool(t, "qemu-img", "bitmap", "-f", "qcow2", "--add", "--enable", d.Path, "b0")
	tool(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", d.Path, full)

	t.Run("at rest", func(t *testing.T) {
		e := g.refusesToMove(t, "vda", api.CodeUnsupportedDisk, "--to-pool", "b")
		mustContain(t, e.Message, `dirty bitmap "b0"`, "--checkpoints drop")
		mustContain(t, h.ctl(t, "volume", "migrate", g.volumeName("vda"), "--to-pool", "b", "--checkpoints", "drop", "--dry-run"), `does not have the dirty bitmap "b0"`)
	})
	g.boot(t)
	g.writes(t)
	t.Run("running", func(t *testing.T) {
		for _, more := range [][]string{nil, {"--checkpoints", "drop"}, {"--method", "mirror", "--to-format", "raw"}} {
			e := g.refusesToMove(t, "vda", api.CodeUnsupportedDisk, append([]string{"--to-pool", "b"}, more...)...)
			mustContain(t, e.Message, `dirty bitmap "b0"`, "block-dirty-bitmap-remove")
		}
	})
	m := g.mirror(t, "--to-pool", "b")
	g.writes(t)
	g.powerOff(t)
	restoresIncremental(t, full, m.Dst.Path, "b0")

	m = g.migrate(t, "vda", "--to-pool", "a", "--checkpoints", "drop")
	mustContain(t, m.Remark, `does not have the dirty bitmap "b0"`)
	wantBitmaps(t, m.Dst.Path)
	wantBitmaps(t, m.Src.Path, "b0")
	g.boot(t)
	g.writes(t)
	g.assertSettled(t)
}

func TestABitmapThatQEMUAloneHasIsSeenAndRemovedAsTheMessageSays(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatQcow2))
	h.virsh(t, "checkpoint-create-as", g.Name, "nightly")
	g.writes(t)
	h.virsh(t, "checkpoint-delete", g.Name, "nightly", "--metadata") // of which libvirt knows nothing then, and QEMU does
	e := g.refusesToMove(t, "vda", api.CodeUnsupportedDisk, "--to-pool", "b")
	mustContain(t, e.Message, `dirty bitmap "nightly"`)
	g.removesBitmap(t, e.Message)
	m := g.migrate(t, "vda", "--to-pool", "b")
	g.writes(t)
	g.powerOff(t)
	wantBitmaps(t, m.Dst.Path)
	wantBitmaps(t, m.Src.Path)
	g.boot(t)
	g.assertSettled(t)
}

func TestABitmapOfAnOverlayComesAlongOrBack(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatQcow2))
	begin := func(args ...string) *move {
		v := g.start(t, "vda", args...)
		h.virsh(t, "checkpoint-create-as", g.Name, "nightly")
		h.virsh(t, "checkpoint-delete", g.Name, "nightly", "--metadata")
		g.writes(t)
		v.copy(t)
		return v
	}
	v := begin("--to-pool", "b", "--to-format", "raw")
	e := h.fails(t, api.ExitOpFailed, api.CodeStateForbidden, v.completeArgs()...)
	mustContain(t, e.Message, `dirty bitmap "nightly"`, "volferryctl migration cancel "+v.ID)
	v.cancel(t)
	e = g.refusesToMove(t, "vda", api.CodeUnsupportedDisk, "--to-pool", "b")
	g.removesBitmap(t, e.Message)

	v = begin("--to-pool", "b")
	v.complete(t)
	g.powerOff(t)
	wantBitmaps(t, v.Dst.Path, "nightly")
	g.boot(t)
	g.assertSettled(t)
}

// A raw image has no place for the bitmap of a checkpoint.
func TestACheckpointMadeInTheOverlayOfARawImageIsNotLost(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	h.virsh(t, "checkpoint-create-as", g.Name, "nightly")
	g.writes(t)
	v.copy(t)
	e := h.fails(t, api.ExitOpFailed, api.CodeStateForbidden, v.completeArgs()...)
	mustContain(t, e.Message, "1 checkpoint")
	h.virsh(t, "checkpoint-delete", g.Name, "nightly")
	v.complete(t)
	g.assertSettled(t)
}
