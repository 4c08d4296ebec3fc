// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/site"
)

// Errors of the kernel in the middle of a move with all guests paused: every guest goes on where it
// was.

// notMovedTrial is a move that cannot end well, and has to be taken back by itself. Mended is
// called when the command has ended.
func (s *sharers) notMovedTrial(mended func(*testing.T)) *trial {
	return &trial{
		host: s.host, waits: true, begin: s.moveArgs,
		ended: func(t *testing.T, r *request) {
			mended(t)
			if r.err == nil {
				t.Errorf("the move was made: %s", r.answer)
			}
			if end := s.moveEnds(t, r.err); end != "undone" {
				t.Errorf("the move %s", end)
			}
		},
	}
}

func TestAMoveWithAllGuestsPausedWhoseMemoryHasNoRoomIsTakenBack(t *testing.T) {
	leftToTestE2E(t)
	h, fs := startHostWithFS(t, "memory", 1024) // two guests have 256 MiB each
	saves := filepath.Join(fs, "saves")
	h.Flags = []string{"--save-dir", saves}
	h.restartDaemon(t)
	s := startSharers(t, h)
	s.saves = saves
	filler := filepath.Join(fs, "filler")
	leave := func(bytes int64) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			takeAllBut(t, filler, bytes)
		}
	}
	mended := func(t *testing.T) {
		t.Helper()
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("before it begins", func(t *testing.T) {
		h.watchPoints(t)
		leave(300 << 20)(t)
		defer mended(t)
		var failed *site.CtlError
		if _, err := h.Ctl(t.Context(), s.moveArgs(t)...); !errors.As(err, &failed) || !strings.Contains(failed.Stderr, "make room or set save_dir") {
			t.Errorf("without room for their memory: %v", err)
		}
		if slices.Contains(h.passed(t), "instance_suspend.suspend.after_do") {
			t.Error("a guest was suspended")
		}
		s.goOnWriting(t)
	})
	t.Run("while it is written", func(t *testing.T) {
		s.notMovedTrial(mended).strikeAt(t, points{"instance_save.save.after_started"}, h.othersDie(leave(4<<20)))
	})
	s.trial().way(t) // and with room it moves
	s.end(t)
}

// takeAllBut makes a file that leaves about so many bytes of its filesystem, at once: others write
// there meanwhile.
func takeAllBut(t *testing.T, path string, bytes int64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const least = 1 << 20
	taken, all := int64(0), int64(st.Bfree)*st.Bsize-bytes
	for size := all; size >= least; {
		switch err := unix.Fallocate(int(f.Fd()), 0, taken, size); {
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		case err != nil:
			t.Fatal(err)
		default:
			taken += size
			size = min(size, all-taken)
		}
	}
}

func TestAMoveWithAllGuestsPausedWhoseDiskFailsIsTakenBack(t *testing.T) {
	leftToTestE2E(t)
	s := startSharers(t, startHost(t))
	mended := func() {}
	x := s.notMovedTrial(func(*testing.T) { mended() })
	x.strikeAt(t, points{"instance_save.save.after_started"}, s.othersDie(func(t *testing.T) {
		mended = failing(t, s.DaemonPID(), s.volume.show(t).Location.Path, fileReads)
	}))
	s.trial().way(t) // and with a good disk it moves
	s.end(t)
}
