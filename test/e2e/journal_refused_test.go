// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
)

// A disk that takes no more of the daemon's journal, at every step. It is not the journal that is
// full: the kernel refuses each write to it, as of a file system that it has made read-only after
// an error. The guest's overlay can be written.

func TestAJournalThatTakesNothingAtAnyStepCostsNoWrite(t *testing.T) {
	crash.LeftToTestCrash(t)
	for _, c := range asks {
		t.Run(c.name, func(t *testing.T) {
			g := crashGuest(t)
			x := c.trial(t, g)
			ps := x.way(t).of(c.kind).where(func(p point) bool { return p.isAfter("do") })
			x.strikeAt(t, ps, g.host.othersDie(g.journalIsRefused))
			g.assertSettled(t)
		})
	}
}

func TestAJournalThatTakesNothingInAnAttachADetachAndAResizeCostsNoWrite(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	h := g.host
	v := h.adoptVolume(t, h.diskIn(t, h.poolA, api.FormatRaw))
	atEffect := func(p point) bool { return p.isAfter("do") }
	forEachPlug(t, func(t *testing.T, detaches bool) {
		x := g.plugTrial(v, "running", "running", detaches)
		x.strikeAt(t, x.way(t).ofPlug(detaches).where(atEffect), h.othersDie(g.journalIsRefused))
	})
	t.Run("resize", func(t *testing.T) {
		size := volumeBytes
		x := g.resizeTrial(&size, func(t *testing.T) {
			g.grown = size - volumeBytes
			g.sees(t, size)
			g.writes(t)
		})
		x.strikeAt(t, x.way(t).of("volume_resize").where(atEffect), h.othersDie(g.journalIsRefused))
	})
	g.assertSettled(t)
}

// A move with all guests paused keeps their memory by what the journal says.
func TestAJournalThatTakesNothingInAMoveWithAllGuestsPausedCostsNoWrite(t *testing.T) {
	crash.LeftToTestCrash(t)
	s := startSharers(t, startHost(t))
	x := s.trial()
	x.strikeAt(t, x.way(t).ofPauseAll().where(func(p point) bool { return p.isAfter("do") }), s.othersDie(s.journalIsRefused(nothingElse)))
	s.end(t)
}

func TestAJournalThatTakesNothingInAShelveAndAnUnshelveLosesNoInstance(t *testing.T) {
	crash.LeftToTestCrash(t)
	s := shelfGuest(t, startHost(t))
	s.forEachShelving(t, func(t *testing.T, x *trial, of func(points) points) {
		ps := of(x.way(t)).where(func(p point) bool { return p.isAfter("do") })
		x.strikeAt(t, ps, s.host.othersDie(s.host.journalIsRefused(nothingElse)))
	})
	s.end(t)
}

func TestAJournalThatTakesNothingInAnAttachAndADetachOfARootCostsNoWrite(t *testing.T) {
	crash.LeftToTestCrash(t)
	g, v := rootGuest(t, startHost(t))
	forEachPlug(t, func(t *testing.T, detaches bool) {
		x := g.rootTrial(v, detaches)
		ps := x.way(t).ofRoot(detaches).where(func(p point) bool { return p.isAfter("do") })
		x.strikeAt(t, ps, g.host.othersDie(g.host.journalIsRefused(nothingElse)))
	})
	g.startsFromItsRoot(t, v)
}

// journalIsRefused lets the kernel refuse writes to the journal until the daemon has noticed,
// and the guest, if it runs, has written all the same.
func (g *guest) journalIsRefused(t *testing.T) {
	t.Helper()
	g.host.journalIsRefused(func(t *testing.T) {
		t.Helper()
		if g.state(t) != "shut off" {
			g.writes(t)
		}
	})(t)
}

// journalIsRefused lets the kernel refuse writes to the journal until the daemon has noticed, and
// what goes on meanwhile has gone on.
func (h *host) journalIsRefused(meanwhile func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		log := logSince(t, h.Log())
		// The database and its log. What SQLite shares of it in memory never meets the disk.
		journal := []string{filepath.Join(h.State(), "journal.db"), filepath.Join(h.State(), "journal.db-wal")}
		setImmutable(t, true, journal...)
		defer setImmutable(t, false, journal...)
		eventually(t, "the journal takes nothing, or the op is over", func() bool {
			return strings.Contains(log(), "journal unavailable") || h.isOver(t)
		})
		meanwhile(t)
	}
}

// isOver: the host has no migration and no op open.
func (h *host) isOver(t *testing.T) bool {
	t.Helper()
	return len(get[[]api.Migration](t, h, "migrations", "migration", "list"))+len(get[[]api.Op](t, h, "ops", "op", "list")) == 0
}

// immutable is FS_IMMUTABLE_FL of ioctl_iflags(2): no process writes to the file, not through what
// it has open either.
const immutable = 0x10

func setImmutable(t *testing.T, is bool, paths ...string) {
	t.Helper()
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			t.Fatal(err)
		}
		if flags &^= immutable; is {
			flags |= immutable
		}
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
			t.Fatal(err)
		}
	}
}
