// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab/workload"
)

// The deaths in the middle of a resize. The command stays, and has to end with the
// size that was asked for, in image, guest and registry.

// resizeTrial makes the disk of a guest larger, by a little each time.
func (g *guest) resizeTrial(size *int, ended func(*testing.T)) *trial {
	return &trial{
		host: g.host, waits: true, noun: "volume",
		begin: func(*testing.T) []string {
			*size += 1 << 20
			return resizeArgs(g.volumeName("vda"), *size)
		},
		ended: func(t *testing.T, r *request) {
			if v := answerOf[api.Volume](t, r); v.SizeBytes != int64(*size) {
				t.Errorf("the answer is %+v, want %d bytes", v, *size)
			}
			g.assertSize(t, *size)
			ended(t)
		},
	}
}

// endsWhole claims of the guest, which is off, that its volume, which has this size, holds
// what was written to it.
func (g *guest) endsWhole(t *testing.T, size int) {
	t.Helper()
	before := g.History("vda")
	before.Volume = uint64(size / workload.BlockSize)
	g.settled = true
	g.assertAtRest(t)
	g.stillHolds(t, before)
}

func TestKillAtEveryStepOfAResizeUnderARunningGuest(t *testing.T) {
	leftToTestE2E(t)
	g := crashGuest(t)
	size := volumeBytes
	x := g.resizeTrial(&size, func(t *testing.T) {
		g.sees(t, size)
		g.writes(t)
	})
	x.strikeAt(t, x.way(t).of("volume_resize").chosen(t), g.host.daemonDies(nothingElse))
	g.quiesce(t)
	g.destroy(t)
	g.endsWhole(t, size)
}

func TestKillAtEveryStepOfAResizeOfAStoppedGuest(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	g.powerOff(t)
	size := volumeBytes
	x := g.resizeTrial(&size, func(*testing.T) {})
	x.strikeAt(t, x.way(t).of("volume_resize"), g.host.daemonDies(nothingElse))
	g.endsWhole(t, size)
}

// The host is fenced while its daemon is dead, and rejoins. What was told of a resize that came to
// nothing is true: asked again it is done.
func TestKillAtEveryStepOfAResizeOfAHostThatIsFenced(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	h := g.host
	size := volumeBytes
	x := g.resizeTrial(&size, func(t *testing.T) {
		g.sees(t, size)
		g.writes(t)
	})
	done := x.ended
	x.ended = func(t *testing.T, r *request) {
		if r.err != nil {
			said := r.err.Error() // after what it says of the daemon that was away
			if !strings.Contains(said, string(api.CodeConflict)) && !strings.Contains(said, string(api.CodeStaleEpoch)) {
				t.Fatal(r.err)
			}
			t.Log(r.err)
			eventually(t, "the host has rejoined, and makes it larger", func() bool {
				r = x.ask(t, resizeArgs(g.volumeName("vda"), size))
				<-r.answered
				return r.err == nil
			})
		}
		done(t, r)
	}
	x.strikeAt(t, x.way(t).of("volume_resize"), h.daemonDies(func(t *testing.T) {
		if _, err := h.RegistryCaller().Ctl(t.Context(), "host", "fence", "lab", "--evidence", "the test has killed its daemon", "--even-if-up"); err != nil {
			t.Fatal(err)
		}
	}))
	g.quiesce(t)
	g.destroy(t)
	g.endsWhole(t, size)
}

// The guest that is started again, by libvirt at the boot or by its user, has its disk in whatever
// size it has then.
func TestKillOfTheOthersInAResize(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	h := g.host
	h.virsh(t, "autostart", g.Name)
	size := volumeBytes
	x := g.resizeTrial(&size, func(t *testing.T) {
		if g.state(t) == "shut off" {
			if err := g.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		g.sees(t, size)
		g.write(t)
	})
	ps := x.way(t).of("volume_resize")
	for name, strike := range h.others() {
		t.Run(name, func(t *testing.T) { x.strikeAt(t, ps.where(point.atStart), h.othersDie(strike)) })
	}
	t.Run("guest", func(t *testing.T) { x.strikeAt(t, ps.where(point.atStart), h.othersDie(g.crashes)) })
	t.Run("host", func(t *testing.T) { x.strikeAt(t, ps.where(point.atEffect), h.daemonDies(g.hostGoesDown)) })
	h.virsh(t, "autostart", "--disable", g.Name)
	g.quiesce(t)
	g.destroy(t)
	g.endsWhole(t, size)
}
