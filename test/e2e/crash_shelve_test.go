// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// The deaths on the way of an instance to the shelf and back. The command stays, and
// has to end well without another word.

// shelf is an instance that goes to the shelf and comes back. Nothing in its definition
// is its host's: it boots from its first disk, and writes to its second one.
type shelf struct {
	*guest

	data *volume
}

// written is the disk that the guest writes to.
const written = "vdb"

// shelfGuest is a guest of a host that is off, and wrote to its disk before if there is time.
func shelfGuest(t *testing.T, h *host) *shelf {
	t.Helper()
	disks := []lab.Disk{h.bootDisk(t, "first"), h.diskIn(t, h.poolA, api.FormatRaw)}
	s := &shelf{guest: h.defineGuestLike(t, lab.GuestConfig{Machine: "q35", UEFI: true, Disks: disks})}
	s.adopt(t)
	s.data = &volume{host: h, disk: disks[1], name: s.volumeName(written), id: s.volume(t, written).ID}
	if crash.Every() { // firmware is slow
		h.ctl(t, "instance", "start", s.Name)
		s.writesAgain(t)
		s.destroy(t)
	}
	return s
}

// shelveTrial puts the instance on the shelf again and again: off its host, or kept
// there. It is in the state before.
func (s *shelf) shelveTrial(state string, kept bool) *trial {
	args, want := []string{"instance", "shelve", s.Name}, api.InstanceShelvedOffloaded
	if kept {
		args, want = append(args, "--offload=false"), api.InstanceShelved
	}
	return &trial{
		host: s.host, waits: true, noun: "instance",
		begin: func(t *testing.T) []string {
			s.bringBack(t, state)
			return args
		},
		ended: func(t *testing.T, r *request) {
			if i := answerOf[api.Instance](t, r); i.State != want {
				t.Fatalf("shelved, the instance is %+v", i)
			}
			s.assertShelved(t, want)
		},
	}
}

// unshelveTrial brings the instance back again and again, from no host or from where
// it was kept. Its guest writes afterwards, if that is looked at.
func (s *shelf) unshelveTrial(kept, writes bool) *trial {
	return &trial{
		host: s.host, waits: true, noun: "instance",
		begin: func(t *testing.T) []string {
			s.bringOff(t, kept)
			return []string{"instance", "unshelve", s.Name}
		},
		ended: func(t *testing.T, r *request) {
			if i := answerOf[api.Instance](t, r); i.State != api.InstanceRunning {
				t.Fatalf("unshelved, the instance is %+v", i)
			}
			s.assertBack(t)
			if writes {
				s.writesAgain(t)
			}
		},
	}
}

func (s *shelf) registered(t *testing.T) api.Instance {
	t.Helper()
	i, err := site.Get[api.Instance](t.Context(), s.host.RegistryCaller(), "instance", "instance", "show", s.UUID)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func isOnShelf(i api.Instance) bool {
	return i.State == api.InstanceShelved || i.State == api.InstanceShelvedOffloaded
}

// bringBack has the instance on its host, in the state.
func (s *shelf) bringBack(t *testing.T, state string) {
	t.Helper()
	if isOnShelf(s.registered(t)) {
		s.host.ctl(t, "instance", "unshelve", s.Name)
	}
	switch now := s.state(t); {
	case state == "running":
		if now != state {
			s.host.ctl(t, "instance", "start", s.Name)
		}
		s.writesAgain(t)
	case now != state:
		s.destroy(t)
	}
}

// bringOff has the instance on the shelf.
func (s *shelf) bringOff(t *testing.T, kept bool) {
	t.Helper()
	if isOnShelf(s.registered(t)) {
		return
	}
	args := []string{"instance", "shelve", s.Name, "--force"}
	if kept {
		args = append(args, "--offload=false")
	}
	s.host.ctl(t, args...)
}

// writesAgain waits until the guest writes, and stops its writer then: that the disk
// holds what was written can be looked at while it runs.
func (s *shelf) writesAgain(t *testing.T) {
	t.Helper()
	if _, err := s.Root(t.Context()); err != nil {
		t.Fatal(err)
	}
	const enough = 50
	if err := errors.Join(s.Write(written, load), s.WaitWriting(t.Context(), written, enough), s.Quiesce(t.Context(), written)); err != nil {
		t.Fatal(err)
	}
	s.assertHolds(t, written, s.data.show(t).Location)
}

func (s *shelf) isDefined(t *testing.T) bool {
	t.Helper()
	return slices.Contains(strings.Fields(s.host.virsh(t, "list", "--all", "--uuid")), s.UUID)
}

// assertShelved claims that the instance is on the shelf, with its volume and all
// that was written, and that nothing but its guard is left on the host.
func (s *shelf) assertShelved(t *testing.T, want api.InstanceState) {
	t.Helper()
	if now := s.registered(t); now.State != want || now.Locked || now.Note != "" {
		t.Errorf("on the shelf the instance is %+v", now)
	}
	if s.isDefined(t) != (want == api.InstanceShelved) {
		t.Errorf("the instance is %s, and has a domain: %t", want, s.isDefined(t))
	}
	s.neverLost(t)
	left, err := s.host.Libvirtd.Leftovers(t.Context(), s.host.Overlays(), s.host.Guards())
	if err != nil {
		t.Fatal(err)
	}
	if left = slices.DeleteFunc(left, func(l string) bool { return strings.HasSuffix(l, "/"+s.UUID) }); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	s.assertHolds(t, written, s.data.show(t).Location)
}

// assertBack claims that the instance runs, with the disks that it had, and that
// nothing keeps it off.
func (s *shelf) assertBack(t *testing.T) {
	t.Helper()
	if state := s.state(t); state != "running" {
		t.Errorf("unshelved, the guest is %s", state)
	}
	s.assertSameSlots(t)
	s.assertNoLeftovers(t, "running")
	s.assertRegistered(t, "vda")
	s.assertRegistered(t, written)
	s.assertHoldsOnlyItsDisks(t)
}

// neverLost claims that the instance is defined on its host, or stored on the shelf;
// that it does not start here as long as it is there; and that its volume stays its
// own. The daemon is dead.
func (s *shelf) neverLost(t *testing.T) {
	t.Helper()
	now, here := s.registered(t), s.isDefined(t)
	switch {
	case !here && !isOnShelf(now):
		t.Errorf("the instance is defined nowhere: %+v", now)
	case here && now.State == api.InstanceShelvedOffloaded:
		t.Errorf("no host has the instance, and there is a domain of it: %+v", now)
	case here && isOnShelf(now):
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "is shelved, or another host's") {
			t.Errorf("virsh start of an instance on the shelf: %v", err)
		}
	}
	v, err := site.Get[api.Volume](t.Context(), s.host.RegistryCaller(), "volume", "volume", "show", s.data.id)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Attachments) != 1 || v.Attachments[0].InstanceID != s.UUID {
		t.Errorf("the attachments of the instance's volume are %+v", v.Attachments)
	}
}

// end brings the instance back for good, and claims that all is as it was.
func (s *shelf) end(t *testing.T) {
	t.Helper()
	s.bringBack(t, "running")
	s.destroy(t)
	s.assertAtRest(t)
	s.settled = true // it has no writer on what it boots from
}

// forEachShelving runs a test for each way to the shelf and back, with the op kinds
// on it.
func (s *shelf) forEachShelving(t *testing.T, run func(t *testing.T, x *trial, ways func(points) points)) {
	t.Helper()
	ofShelve := func(ps points) points { return ps.of("instance_shelve") }
	ofUnshelve := func(ps points) points { return append(ps.of("instance_unshelve"), ps.of("instance_start")...) }
	t.Run("shelve", func(t *testing.T) { run(t, s.shelveTrial("shut off", false), ofShelve) })
	t.Run("unshelve", func(t *testing.T) { run(t, s.unshelveTrial(false, false), ofUnshelve) })
	t.Run("shelve and keep", func(t *testing.T) { run(t, s.shelveTrial("shut off", true), ofShelve) })
	t.Run("unshelve what was kept", func(t *testing.T) { run(t, s.unshelveTrial(true, false), ofUnshelve) })
}

func TestKillAtEveryStepOfAShelveAndAnUnshelve(t *testing.T) {
	leftToTestE2E(t)
	s := shelfGuest(t, startHost(t))
	blow := s.host.daemonDies(s.neverLost)
	if !crash.Every() {
		// Each on one side of where the only definition changes hands.
		off, back := s.shelveTrial("shut off", false), s.unshelveTrial(false, false)
		off.strikeAt(t, points{"instance_shelve.undefine.after_do"}, blow)
		back.strikeAt(t, points{"instance_unshelve.define.after_do"}, blow)
		s.end(t)
		return
	}
	s.forEachShelving(t, func(t *testing.T, x *trial, of func(points) points) {
		x.strikeAt(t, of(x.way(t)), blow)
	})
	s.end(t)
}

// With a guest that has to be stopped first, and one that is started at last.
func TestKillInAShelveAndAnUnshelveOfARunningGuest(t *testing.T) {
	crash.LeftToTestCrash(t)
	s := shelfGuest(t, startHost(t))
	blow := s.host.daemonDies(s.neverLost)
	t.Run("shelve", func(t *testing.T) {
		s.shelveTrial("running", false).strikeAt(t, points{
			"instance_shelve.stop.after_started", "instance_shelve.stop.after_do", "instance_shelve.undefine.after_do",
		}, blow)
	})
	t.Run("unshelve", func(t *testing.T) {
		s.unshelveTrial(false, true).strikeAt(t, points{"instance_start.power_on.after_started", "instance_start.power_on.after_do"}, blow)
	})
	s.end(t)
}

func TestKillOfTheRegistryInAShelveAndAnUnshelve(t *testing.T) {
	crash.LeftToTestCrash(t)
	s := shelfGuest(t, startHost(t))
	s.forEachShelving(t, func(t *testing.T, x *trial, _ func(points) points) {
		ps := x.registryWay(t).where(func(p point) bool { return strings.HasPrefix(string(p), "instance.transition.") })
		t.Run("alone", func(t *testing.T) { x.strikeAt(t, ps, s.host.registryDies()) })
		t.Run("with the daemon", func(t *testing.T) { x.strikeAt(t, ps, s.host.bothDie(s.neverLost)) })
	})
	s.end(t)
}

func TestKillOfTheOthersInAShelveAndAnUnshelve(t *testing.T) {
	crash.LeftToTestCrash(t)
	s := shelfGuest(t, startHost(t))
	for name, strike := range s.host.others() {
		t.Run(name, func(t *testing.T) {
			s.forEachShelving(t, func(t *testing.T, x *trial, of func(points) points) {
				x.strikeAt(t, of(x.way(t)).where(point.atStart), s.host.othersDie(strike))
			})
		})
	}
	s.end(t)
}

// Everything on the host ends at once, and only the instance's own definition, or the shelf, says
// where it is.
func TestKillOfTheHostInAShelveAndAnUnshelve(t *testing.T) {
	crash.LeftToTestCrash(t)
	s := shelfGuest(t, startHost(t))
	blow := s.host.daemonDies(func(t *testing.T) {
		s.host.reboot(t, s.guest)
		s.neverLost(t)
	})
	s.forEachShelving(t, func(t *testing.T, x *trial, of func(points) points) {
		// A guest that has come back goes off with its host, as any other.
		ps := of(x.way(t)).where(point.atEffect).where(func(p point) bool { return p.kind() != "instance_start" })
		x.strikeAt(t, ps, blow)
	})
	s.end(t)
}
