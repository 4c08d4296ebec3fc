// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// methodOffline is how a volume moves that no QEMU has, and that none gets meanwhile.
const methodOffline = "offline"

// migrate moves a disk of the guest in one go and returns the migration, which
// must be completed.
func (g *guest) migrate(t *testing.T, target string, args ...string) api.Migration {
	t.Helper()
	before := time.Now()
	m := get[api.Migration](t, g.host, "migration", append([]string{"volume", "migrate", g.volumeName(target)}, args...)...)
	if m.State != api.MigrationCompleted || m.Error != nil {
		t.Fatalf("migration ended as %s: %+v", m.State, m)
	}
	g.noteMove(t, m)
	// The windows are around the moments at which, by the migration's word, the
	// guest's disk was switched; what came between is the copy.
	frozen := m.FinishedAt.Add(-time.Duration(m.ExposedSeconds * float64(time.Second)))
	switched := m.FinishedAt.Add(-time.Second)
	if switched.Before(before) {
		switched = before
	}
	g.noteStalls(t, target, m, g.idle(before),
		span{*m.StartedAt, frozen.Add(stallMargin)}, span{switched, m.FinishedAt.Add(stallMargin)})
	return m
}

// move is a migration made step by step. Between start and the end its source
// must not change by a byte.
type move struct {
	g      *guest
	target string
	api.Migration

	sum     string // of the source, frozen
	idle    span
	started span
}

// start freezes a disk of the guest.
func (g *guest) start(t *testing.T, target string, args ...string) *move {
	t.Helper()
	v := &move{g: g, target: target, idle: g.idle(time.Now())}
	v.started.from = v.idle.to
	v.Migration = get[api.Migration](t, g.host, "migration", append([]string{"migration", "start", g.attachment(t, target).ID}, args...)...)
	v.started.to = time.Now()
	if v.State != api.MigrationStarted {
		t.Fatalf("start ended as %s: %+v", v.State, v.Migration)
	}
	v.sum = sumOf(t, v.Src.Path)
	return v
}

// copyArgs, completeArgs and cancelArgs are the command lines of the steps.
func (v *move) copyArgs() []string { return []string{"migration", "copy", v.SrcAttachmentID} }

func (v *move) completeArgs() []string {
	return []string{"migration", "complete", v.SrcAttachmentID, v.DstAttachmentID}
}
func (v *move) cancelArgs() []string { return []string{"migration", "cancel", v.SrcAttachmentID} }

// copy makes the copy.
func (v *move) copy(t *testing.T) {
	t.Helper()
	v.Migration = get[api.Migration](t, v.g.host, "migration", v.copyArgs()...)
	if v.State != api.MigrationCopied {
		t.Fatalf("copy ended as %s: %+v", v.State, v.Migration)
	}
}

// complete switches the guest over, and holds the source against what it was.
func (v *move) complete(t *testing.T) {
	t.Helper()
	begin := time.Now()
	v.finish(t)
	v.g.noteStalls(t, v.target, v.Migration, v.idle, v.started, span{begin, time.Now()})
	if v.DeleteSource {
		return
	}
	v.assertFrozen(t)
}

// finish is complete for a guest that did not write all the time.
func (v *move) finish(t *testing.T) {
	t.Helper()
	v.assertFrozen(t)
	v.Migration = get[api.Migration](t, v.g.host, "migration", v.completeArgs()...)
	if v.State != api.MigrationCompleted {
		t.Fatalf("complete ended as %s: %+v", v.State, v.Migration)
	}
	v.g.noteMove(t, v.Migration)
	if d := deviceAt(v.Src.Path); d != nil && d.connected {
		return // whose device has gone with the volume
	}
	if exists(t, fileOf(v.Src.Path)) == v.DeleteSource {
		t.Errorf("delete_source is %v, and whether the source is there the same: %s", v.DeleteSource, v.Src.Path)
	}
}

// cancel brings the guest back to its source.
func (v *move) cancel(t *testing.T) {
	t.Helper()
	v.Migration = get[api.Migration](t, v.g.host, "migration", v.cancelArgs()...)
	if v.State != api.MigrationCancelled {
		t.Fatalf("cancel ended as %s: %+v", v.State, v.Migration)
	}
	v.g.noteMove(t, v.Migration)
}

// copyPartly begins a copy, does not wait for it, and returns when it has copied
// something. The migration must have a cap that lets it last.
func (v *move) copyPartly(t *testing.T) {
	t.Helper()
	v.g.host.ctl(t, append([]string{"--no-wait"}, v.copyArgs()...)...)
	v.g.host.untilCopying(t, v.ID)
}

// copyThroughDeath has the daemon killed in the middle of the copy, and the next one go on with it
// without a cap. The migration must have one that lets it last.
func (v *move) copyThroughDeath(t *testing.T) {
	t.Helper()
	h := v.g.host
	v.copyPartly(t)
	h.KillDaemon()
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.copy(t)
}

// untilCopying returns when a migration is in the middle of its copy.
func (h *host) untilCopying(t *testing.T, id string) {
	t.Helper()
	eventually(t, "something is copied", func() bool {
		m := get[api.Migration](t, h, "migration", "migration", "show", id)
		if m.State != api.MigrationStarting && m.State != api.MigrationStarted && m.State != api.MigrationCopying {
			t.Fatalf("migration is %s already", m.State)
		}
		return m.State == api.MigrationCopying && m.BytesDone > 0
	})
}

// assertFrozen claims that nothing was written to the source since the start.
func (v *move) assertFrozen(t *testing.T) {
	t.Helper()
	if sum := sumOf(t, v.Src.Path); sum != v.sum {
		t.Errorf("source %s changed while it was frozen", v.Src.Path)
	}
}

// sumOf is the SHA-256 of a file, a block device, or what a server has of an export.
func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(fileOf(path))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return sumOfAll(t, f)
}

// sumOfAll is the SHA-256 of what is left to read.
func sumOfAll(t *testing.T, r io.Reader) string {
	t.Helper()
	hash := sha256.New()
	if _, err := io.Copy(hash, r); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
