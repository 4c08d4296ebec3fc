// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// A guest of a move with all guests paused cannot be restored, or somebody lets one run on. What
// the others write from then on is newer than the memory of the guest that is left: nobody restores
// that, and the command that the message prints, and that one alone, gives it up. The daemon is
// dead in that moment, so that it is always the same one.
func TestMemoryThatIsOlderThanWhatOtherGuestsHaveWrittenIsRestoredByNobody(t *testing.T) {
	leftToTestE2E(t)
	s := startSharers(t, startHost(t))
	for _, c := range []struct {
		name string
		at   point
		do   func(*testing.T)
	}{
		{"its file is damaged", "instance_restore_paused.wake.after_started", s.damagesMemory},
		{"virsh resume of a guest while another one is saved", "instance_save.save.after_do", s.resumesOne},
		{"virsh resume of a guest that is restored", "instance_restore_paused.wake.after_do", s.resumesOne},
	} {
		if !t.Run(c.name, func(t *testing.T) {
			x := &trial{host: s.host, waits: true, begin: s.moveArgs, ended: s.memoryIsGivenUp}
			x.strikeAt(t, points{c.at}, s.daemonDies(c.do))
		}) {
			return // nothing is certain behind it
		}
	}
	s.end(t)
}

// damagesMemory cuts off half of the memory of a guest that is saved.
func (s *sharers) damagesMemory(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.saves, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("memory in %s: %v, %v", s.saves, files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(files[0], info.Size()/2); err != nil {
		t.Fatal(err)
	}
}

// resumesOne lets a guest run on that stands still.
func (s *sharers) resumesOne(t *testing.T) {
	t.Helper()
	i := slices.IndexFunc(s.both, func(p *plugged) bool { return p.guest.state(t) == "paused" })
	if i < 0 {
		t.Fatal("no guest stands still")
	}
	if err := s.both[i].guest.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// memoryIsGivenUp claims that a move stopped for an operator with one guest that runs and one that
// does not, and that the command which gives up its memory ends the move, with both guests where
// the volume is.
func (s *sharers) memoryIsGivenUp(t *testing.T, r *request) {
	t.Helper()
	if r.err == nil {
		t.Fatalf("the move has ended: %s", r.answer)
	}
	var m api.Migration
	var givesUp []string
	eventually(t, "a command is said that gives the memory up", func() bool { // once the others run
		m = newestOf(get[[]api.Migration](t, s.host, "migrations", "migration", "list", "--all", "--volume", s.volume.id))
		if m.State.Final() {
			t.Fatalf("the migration is %s: %+v", m.State, m.Error)
		}
		again, _ := m.Cures()
		line, _, _ := strings.Cut(again, api.CureSeparator)
		givesUp = strings.Fields(strings.TrimPrefix(line, "volferryctl "))
		return m.State == api.MigrationNeedsOperator && slices.Contains(givesUp, "--discard-memory")
	})
	left := s.oneRuns(t)
	if left.state(t) == "shut off" {
		if err := left.Start(t.Context()); err == nil {
			t.Error("the guest was started beside its memory")
		}
	}
	if out, err := s.Ctl(t.Context(), givesUp[:3]...); err == nil {
		t.Errorf("the memory was restored by %q, and not only by %q: %s; %+v", givesUp[:3], givesUp, out, m)
	}
	if s.oneRuns(t) != left || !s.hasMemory(t, left) {
		t.Error("the plain command changed something")
	}
	_, _ = s.Ctl(t.Context(), givesUp...) // of a move that was taken back it says why, with the status of that
	if state := left.state(t); state != "shut off" {
		t.Errorf("the guest whose memory was given up is %s", state)
	}
	s.ctl(t, "instance", "start", left.Name)
	if m = get[api.Migration](t, s.host, "migration", "migration", "show", m.ID); !m.State.Final() {
		t.Errorf("the migration is %s: %+v", m.State, m.Error)
	}
	unused, err := filepath.Glob(filepath.Join(s.saves, "*.unused")) // which nothing restores, and a person removes
	for _, file := range unused {
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.both {
		if p.guest == left {
			p.appears(t)
			s.begins(t, p)
		}
	}
	s.assertMoved(t, m)
}

// oneRuns claims that one guest runs and writes, and returns the other one.
func (s *sharers) oneRuns(t *testing.T) *guest {
	t.Helper()
	var left []*guest
	for _, p := range s.both {
		if p.guest.state(t) != "running" {
			left = append(left, p.guest)
			continue
		}
		if err := p.guest.WaitWriting(t.Context(), p.seen, 20); err != nil {
			t.Fatal(err)
		}
	}
	if len(left) != 1 {
		t.Fatalf("%d guests do not run", len(left))
	}
	return left[0]
}
