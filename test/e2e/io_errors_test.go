// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// Disks that answer with I/O errors for a while: the kernel answers so to the system
// calls of a process on one file.

// The system calls that read a file, and those that write to it.
const (
	fileReads  = "pread64,preadv,preadv2"
	fileWrites = "pwrite64,pwritev,pwritev2,fallocate,fdatasync,fsync"
)

// failing has these calls of a process on a file answered with EIO until what it returns
// is called.
func failing(t *testing.T, pid int, path, calls string) (mended func()) {
	t.Helper()
	return lab.Inject(t, pid, "-P", path, "-e", "trace="+calls, "-e", "inject="+calls+":error=EIO")
}

// mustFail claims that a command fails while a disk does.
func (h *host) mustFail(t *testing.T, args ...string) {
	t.Helper()
	_, err := h.Ctl(t.Context(), append([]string{"-o", "json", "--progress", "none"}, args...)...)
	if err == nil {
		t.Fatalf("volferryctl %s: it did, and the disk answers with errors", strings.Join(args, " "))
	}
	t.Log(err)
}

func TestACopyThatMeetsAnIOErrorGoesOnWhenTheDiskIsMended(t *testing.T) {
	leftToTestE2E(t)
	for _, c := range []struct {
		name  string
		calls string
		path  func(*move) string
	}{
		{"src", fileReads, func(v *move) string { return v.Src.Path }},
		{"dst", fileWrites, func(v *move) string { return v.Dst.Path }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := startHost(t)
			g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
			v := g.start(t, "vda", "--to-pool", "b")
			g.writes(t)
			mended := failing(t, h.DaemonPID(), c.path(v), c.calls)
			h.mustFail(t, v.copyArgs()...)
			h.refuses(t, api.CodeCopyNotVerified, v.completeArgs()...)
			if m := get[api.Migration](t, h, "migration", "migration", "show", v.ID); m.State != api.MigrationStarted || m.Error == nil || m.Error.Code != api.CodeIOError {
				t.Errorf("the migration is %s with error %v; it must be open with %s, to be copied again or cancelled", m.State, m.Error, api.CodeIOError)
			}
			g.writes(t)
			v.assertFrozen(t)
			mended()
			v.copy(t)
			v.complete(t)
			g.assertSettled(t)
		})
	}
}

// undone is what the daemon logs of an op that comes to nothing.
const undone = "step failed, the op is undone"

// untilUndone makes a call that does not wait, and returns when an op of it was undone for
// an error. The migration tries again by itself.
func (v *move) untilUndone(t *testing.T, args []string) {
	t.Helper()
	h := v.g.host
	before := h.logged(t, undone)
	h.ctl(t, append([]string{"--no-wait"}, args...)...)
	eventually(t, "QEMU's job fails", func() bool { return h.logged(t, undone) > before })
}

// QEMU meets the errors in the job of a complete. The guest sees none of them, and its
// overlay keeps what it writes.
func TestACompleteWhoseDiskFailsCostsTheGuestNothing(t *testing.T) {
	leftToTestE2E(t)
	for _, want := range []api.MigrationState{api.MigrationCompleted, api.MigrationCancelled} {
		t.Run(string(want), func(t *testing.T) {
			h, a, _ := sharedPools(t)
			g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
			v := g.start(t, "vda", "--to-pool", "b")
			g.writes(t)
			v.copy(t)
			mended := failing(t, g.pid(t), v.Dst.Path, fileWrites)
			v.untilUndone(t, v.completeArgs())
			g.writes(t)
			if want == api.MigrationCancelled {
				v.cancel(t) // with a disk that fails still
			} else {
				mended()
				v.assertFrozen(t)
			}
			h.untilState(t, v.ID, want)
			g.assertSettledAndGoOn(t)
			g.assertSettled(t)
		})
	}
}

// untilFailed returns why the last request of a move has come to nothing, once it is tried no more
// and has left the move in this state.
func (v *move) untilFailed(t *testing.T, left api.MigrationState) (why *api.Error) {
	t.Helper()
	eventually(t, "it is said why it came to nothing", func() bool {
		m := get[api.Migration](t, v.g.host, "migration", "migration", "show", v.ID)
		if m.State.Final() || m.State == api.MigrationNeedsOperator {
			t.Fatalf("the migration is %s: %v", m.State, m.Error)
		}
		why = m.Error
		return m.State == left && why != nil
	})
	return why
}

// outlivesItsJob claims that a guest writes after an error has ended a job on its disk. QEMU 7.2
// may die when such a job ends under a write, which is a crash of the guest like any other.
func (g *guest) outlivesItsJob(t *testing.T) {
	t.Helper()
	if g.state(t) == "shut off" {
		t.Log("QEMU has died of it")
		g.noteCut(t)
		return
	}
	g.writes(t)
}

// The job reads from the source what the guest has not written beside what it has. The kernel
// answers so of a device that has lost its file.
func TestACompleteWhoseSourceCannotBeReadLosesNothing(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	device := h.device(t, a, volumeBytes)
	g := h.runningGuest(t, h.diskOn(t, device))
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	v.copy(t)
	held, err := os.ReadFile(device.File)
	if err := errors.Join(err, os.Truncate(device.File, 0)); err != nil {
		t.Fatal(err)
	}
	v.untilUndone(t, v.completeArgs())
	g.outlivesItsJob(t)
	if err := os.WriteFile(device.File, held, 0o600); err != nil {
		t.Fatal(err)
	}
	h.untilState(t, v.ID, api.MigrationCompleted)
	if g.state(t) == "shut off" {
		g.boot(t)
	}
	g.assertSettled(t)
}

// QEMU meets the errors where a cancel brings back what the overlay has.
func TestACancelWhoseDiskFailsKeepsTheOverlayUntilItIsMended(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	mended := failing(t, g.pid(t), v.Src.Path, fileWrites)
	v.untilUndone(t, v.cancelArgs())
	g.writes(t)
	mended()
	v.cancel(t)
	if at := g.volume(t, "vda").Location.Path; at != v.Src.Path {
		t.Errorf("the volume is at %s, want %s", at, v.Src.Path)
	}
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}

// qemu-img meets the errors in the fold of a stopped guest's overlay.
func TestAFoldOfAStoppedGuestWhoseDiskFailsLosesNothing(t *testing.T) {
	leftToTestE2E(t)
	g := crashGuest(t)
	h := g.host
	g.powerOff(t)
	startsOnItsOverlay := func(t *testing.T) {
		t.Helper()
		g.boot(t)
		g.powerOff(t)
	}
	t.Run("complete, and src cannot be read", func(t *testing.T) {
		f := foldEnds["complete"](g, t)
		mended := failing(t, h.DaemonPID(), f.Src.Path, fileReads)
		h.ctl(t, f.args...)
		mended()
		f.ended(t)
	})
	t.Run("complete, and dst cannot be written", func(t *testing.T) {
		f := foldEnds["complete"](g, t)
		mended := failing(t, h.DaemonPID(), f.into, fileWrites)
		h.mustFail(t, f.args...)
		startsOnItsOverlay(t)
		v := f.move
		v.cancel(t) // with a disk that fails still
		mended()
		g.endedRight(t, v.Migration, "shut off")
	})
	t.Run("cancel, and src cannot be written", func(t *testing.T) {
		f := foldEnds["cancel"](g, t)
		mended := failing(t, h.DaemonPID(), f.into, fileWrites)
		h.mustFail(t, f.args...)
		mended()
		startsOnItsOverlay(t)
		h.ctl(t, f.args...)
		f.ended(t)
	})
	g.boot(t)
	g.assertSettled(t)
}

// QEMU flushes src before it switches to the overlay, and cannot.
// What fails is the call that gives the new image its name.
func TestAStartWhoseDestinationCannotBeMadeChangesNothing(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	for _, state := range []string{"running", "stopped"} {
		t.Run(state, func(t *testing.T) {
			g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
			g.be(t, state)
			dst := filepath.Join(b, "failing-"+state)
			before, now := g.volume(t, "vda"), g.state(t)
			mended := lab.Inject(t, h.DaemonPID(), "-e", "trace=linkat", "-e", "inject=linkat:error=EIO")
			h.mustFail(t, "migration", "start", g.attachment(t, "vda").ID, "--to-path", dst)
			mended()
			g.assertNoLeftovers(t, now)
			if exists(t, dst) {
				t.Errorf("there is %s", dst)
			}
			if at := g.volume(t, "vda").Location; at != before.Location {
				t.Errorf("the volume is at %+v, want %+v", at, before.Location)
			}
			g.migrate(t, "vda", "--to-path", dst)
			g.assertSettled(t)
		})
	}
}

func TestAStartWhoseSourceFailsIsUndone(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	disk := h.diskIn(t, a, api.FormatRaw)
	disk.Mix = workload.Mix{Large: workload.DefaultMix.Large} // QEMU leaves out the flush of what nobody has written since the last one
	g := h.runningGuest(t, disk)
	before := g.volume(t, "vda")
	g.writes(t)
	g.quiesce(t)
	mended := failing(t, g.pid(t), before.Location.Path, "fdatasync,fsync")
	h.mustFail(t, "migration", "start", g.attachment(t, "vda").ID, "--to-pool", "b")
	mended()
	g.assertNoLeftovers(t, "running")
	if at := g.volume(t, "vda").Location; at != before.Location {
		t.Errorf("the volume is at %+v, want %+v", at, before.Location)
	}
	g.write(t)
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	v.copy(t)
	v.complete(t)
	g.assertSettled(t)
}
