// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
	"github.com/volferry/volferry/test/site"
)

// ownLimit is the limit that the owner of a guest has put on its writes, more than it can write.
const ownLimit = 1 << 30

// tight are the flags of a move whose rounds take some seconds, and in which what the guests
// write meanwhile takes too long for its pause.
func tight(more ...string) []string {
	return append([]string{"--live-shared", "--max-pause", "6s", "--bandwidth", "6MiB/s", "--yes"}, more...)
}

// startOutrun starts two hosts whose guests write all their halves over and over, and of which
// one has a limit that is none.
func startOutrun(t *testing.T) *sharedLive {
	t.Helper()
	s := startSharedLiveOf(t, shape{mix: workload.Mix{Sequential: 64}}, "hv1", "hv2")
	if _, err := s.g1.host.Libvirtd.Virsh(t.Context(), "blkdeviotune", s.g1.Name, s.disk1, "--write-bytes-sec", fmt.Sprint(ownLimit), "--live", "--config"); err != nil {
		t.Fatal(err)
	}
	s.pace(t, lab.Load{Depth: 2})
	return s
}

// heldBack reports whether both guests may write less than their owners let them.
func (s *sharedLive) heldBack(t *testing.T) bool {
	t.Helper()
	first, second := limitsOf(t, s.g1, s.disk1), limitsOf(t, s.g2, s.disk2)
	return first != fmt.Sprintf("0 0 %d", ownLimit) && second != "0 0 0"
}

// assertLimits claims that the guests may write what their owners let them, and no less.
func (s *sharedLive) assertLimits(t *testing.T) {
	t.Helper()
	if first, second := limitsOf(t, s.g1, s.disk1), limitsOf(t, s.g2, s.disk2); first != fmt.Sprintf("0 0 %d", ownLimit) || second != "0 0 0" {
		t.Errorf("the guests have the limits (total, read, write) %s and %s", first, second)
	}
}

// assertWhole claims that the move has left nothing, wherever the volume is.
func (s *sharedLive) assertWhole(t *testing.T) {
	t.Helper()
	s.assertLimits(t)
	s.assertOver(t)
	s.assertNothingLeft(t)
	s.g1.write(t, s.disk1)
	s.g2.write(t, s.disk2)
	s.pace(t, lab.Load{Depth: 2})
}

// refusedPause claims that a command has ended with pause_too_long and these words, with the
// volume where it was.
func (s *sharedLive) refusedPause(t *testing.T, err error, words string) {
	t.Helper()
	var failed *site.CtlError
	if !errors.As(err, &failed) || !strings.Contains(failed.Stderr, string(api.CodePauseTooLong)) || !strings.Contains(failed.Stderr, words) {
		t.Errorf("want %s and %q: %v", api.CodePauseTooLong, words, err)
	}
	if now := s.now(t); now.Location != s.before.Location || now.Generation != s.before.Generation {
		t.Errorf("the volume is %+v, and was %+v", now, s.before)
	}
	s.assertWhole(t)
}

// Guests write faster than their hosts copy. Without a word the move is taken back, with the word
// they are held back for as long as it takes: not longer than a cancel, nor than the move that a
// daemon dies in. What the pause of that took is known then, and one that is to be shorter is
// refused.
func TestGuestsThatOutrunTheCopyAreLeftAloneOrHeldBackUntilTheMoveIsOver(t *testing.T) {
	t.Parallel()
	leftToTestLiveShared(t)
	s := startOutrun(t)
	admin := s.Registry.Caller()
	move := func(flags ...string) []string {
		return append([]string{"volume", "migrate", s.d.Name, "--to-pool", newSharedPool, "--delete-source"}, flags...)
	}
	whileHeldBack := func(t *testing.T) (id string) {
		t.Helper()
		id = strings.TrimSpace(ctl(t, admin, append([]string{"--no-wait"}, move(tight("--throttle-writers")...)...)...))
		eventually(t, "the guests are held back", func() bool { return s.heldBack(t) })
		t.Logf("held back to (total, read, write) %s and %s", limitsOf(t, s.g1, s.disk1), limitsOf(t, s.g2, s.disk2))
		return id
	}

	_, err := admin.Ctl(t.Context(), append([]string{"-o", "json", "--progress", "none"}, move(tight()...)...)...)
	s.refusedPause(t, err, "write faster than their hosts copy")
	s.assertDoctorWarns(t, true)

	ctl(t, admin, "migration", "cancel", whileHeldBack(t))
	s.assertWhole(t)

	id := whileHeldBack(t)
	h := s.Hosts[1]
	h.KillDaemon()
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctl(t, admin, "migration", "watch", id)
	if now := s.now(t); now.Location.Pool != newSharedPool {
		t.Errorf("after the move the volume is %+v", now)
	}
	s.assertDoctorWarns(t, false)
	s.assertWhole(t)

	s.before = s.now(t)
	_, err = admin.Ctl(t.Context(), "-o", "json", "--progress", "none", "volume", "migrate", s.d.Name, "--to-pool", sharedPool, "--live-shared", "--max-pause", "2s", "--yes")
	s.refusedPause(t, err, "as it did last time; nothing was done")

	s.pace(t, light)
	ctl(t, admin, "pool", "drain", newSharedPool, "--to", sharedPool, "--delete-source", "--live-shared", "--max-pause", "1m")
	if now := s.now(t); now.Location.Pool != sharedPool || now.Generation != s.before.Generation+1 {
		t.Errorf("after the drain the volume is %+v", now)
	}
	s.assertWhole(t)
}

// assertDoctorWarns claims that the doctor of each host says of its guest that its process was
// asked by its monitor, or does not.
func (s *sharedLive) assertDoctorWarns(t *testing.T, want bool) {
	t.Helper()
	for _, g := range []*guest{s.g1, s.g2} {
		said := ctl(t, g.host.Caller, "doctor")
		info, err := g.host.Libvirtd.Virsh(t.Context(), "dominfo", g.Name)
		if err != nil {
			t.Fatal(err)
		}
		if warns, tainted := strings.Contains(said, "instance "+g.Name+" tainted"), strings.Contains(info, "custom monitor"); warns != want || tainted != want {
			t.Errorf("libvirt has guest %s as\n%s\nand doctor says\n%s", g.Name, info, said)
		}
	}
}
