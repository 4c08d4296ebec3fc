// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// An operator commits the overlay of a migration as if it were a snapshot of his own. The
// guest is back on src then, and cancel sees that.
func TestAnOverlayThatAnOperatorHasCommittedIsCancelledOntoSrc(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	src := g.volume(t, "vda").Location
	for _, when := range []struct {
		name string
		do   func(*move, *testing.T)
	}{
		{"after the copy", (*move).copy},
		{"while another tool copies", func(*move, *testing.T) {}},
		{"of a guest that was started on it", func(_ *move, t *testing.T) { g.powerOff(t); g.boot(t) }},
	} {
		t.Run(when.name, func(t *testing.T) {
			args := []string{"--to-pool", "b"}
			if when.name == "while another tool copies" {
				args = append(args, "--external-copy")
			}
			v := g.start(t, "vda", args...)
			g.writes(t)
			when.do(v, t)
			overlay := filepath.Join(h.Overlays(), v.ID+".qcow2")
			h.virsh(t, "blockcommit", g.Name, "vda", "--active", "--pivot", "--wait")
			g.writes(t)
			v.cancel(t)
			if at := g.volume(t, "vda").Location; at != src {
				t.Errorf("the volume is at %+v, want %+v", at, src)
			}
			if exists(t, v.Dst.Path) {
				t.Error("the destination is left")
			}
			// It is kept, and nobody has it.
			mustContain(t, v.Remark, overlay)
			if modes := g.openModes(t, overlay); len(modes) > 0 {
				t.Errorf("the guest has the overlay open: %v", modes)
			}
			if err := os.Remove(overlay); err != nil {
				t.Error(err)
			}
			eventually(t, "the instance may start again", func() bool { return h.chainPart(t).Status == "ok" })
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}

var keptCommands = regexp.MustCompile("(?s)\\*\\*What the source has now is right.*?```sh\n(.*?)```")

// The guest that was committed to the source has run there, and is off: nobody can tell any more by
// its process. A person knows, and does what docs/how-to/recover.md says.
func TestAGuestThatRanOnTheSourceAndIsOffIsCancelledByTheCommandsOfThePage(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	frozen, err := os.Stat(v.Src.Path)
	if err != nil {
		t.Fatal(err)
	}
	g.writes(t)
	v.copy(t)
	h.virsh(t, "blockcommit", g.Name, "vda", "--active", "--pivot", "--wait")
	g.writes(t)
	g.powerOff(t)
	h.fails(t, api.ExitOpFailed, api.CodeChainChanged, v.cancelArgs()...)
	h.types(t, t.TempDir(), strings.NewReplacer("OVERLAY", v.overlay(), "SOURCE", v.Src.Path, "TIME", frozen.ModTime().UTC().Format(time.RFC3339Nano),
		"repair I", "repair "+g.Name, "cancel M", "cancel "+v.SrcAttachmentID).Replace(recoverCommands(t, keptCommands)[1]))
	if at := g.volume(t, "vda").Location; at != v.Src {
		t.Errorf("the volume is at %+v, want %+v", at, v.Src)
	}
	if err := os.Remove(v.overlay() + ".kept"); err != nil {
		t.Error(err)
	}
	g.boot(t)
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}

// A program writes to the source while the guest is off. What the overlay holds belongs to the
// source as it was, and is folded into nothing else.
func TestASourceThatWasWrittenIsNotFoldedInto(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := g.runThenStop(t)
	v.copy(t)
	overlay := g.persistentSlots(t)[0].Source
	f, err := os.OpenFile(v.Src.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	frozen, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	was := make([]byte, 4096)
	if _, err := f.ReadAt(was, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte("x"), len(was)), 0); err != nil {
		t.Fatal(err)
	}
	written := sumOf(t, v.Src.Path)
	for _, args := range [][]string{v.cancelArgs(), v.completeArgs(), v.cancelArgs()} {
		h.fails(t, api.ExitOpFailed, api.CodeChainChanged, args...)
	}
	if sumOf(t, v.Src.Path) != written || !exists(t, overlay) || g.persistentSlots(t)[0].Source != overlay {
		t.Errorf("source, overlay or definition (%+v) was touched", g.persistentSlots(t))
	}
	// It is as it was again, and so is its time.
	if _, err := f.WriteAt(was, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(v.Src.Path, frozen.ModTime(), frozen.ModTime()); err != nil {
		t.Fatal(err)
	}
	v.cancel(t)
	g.endedRight(t, v.Migration, "shut off")
}
