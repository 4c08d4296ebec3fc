// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab/syscalls"
)

// The deaths and hangs of QEMU and qemu-img at their system calls on the images of a move, an
// attach, a detach and a resize.

// hang is how long a program stands still that does not die.
const hang = 3 * time.Second

// atOverlays are the points at overlays, atPool those at images in the pool to which a move goes
// or in which a cancel has src, and anywhere those at all images of the host.
func atOverlays(c *callGuest, _ *testing.T) string { return c.host.Overlays() }

func atPool(where func(*callGuest, *testing.T) string) func(*callGuest, *testing.T) string {
	return func(c *callGuest, t *testing.T) string { return "/pool-" + where(c, t) + "/" }
}

func anywhere(c *callGuest, _ *testing.T) string { return c.host.Dir }

// toPool and fromPool are the names of the pool where the guest's disk is not, and where it is.
func toPool(c *callGuest, t *testing.T) string   { return otherPool(c.volume(t, "vda")) }
func fromPool(c *callGuest, t *testing.T) string { return c.volume(t, "vda").Location.Pool }

// qemuDies is the blow of a guest whose process dies at an image.
func qemuDies(image func(*callGuest, *testing.T) string) *callBlow {
	return &callBlow{program: syscalls.QEMU, does: syscalls.Kill, image: image, back: func(c *callGuest, t *testing.T) {
		if err := c.WaitState(t.Context(), "shut off"); err != nil {
			t.Fatal(err)
		}
		c.cuts = append(c.cuts, time.Now())
	}}
}

// qemuHangs is the blow of a guest whose process stands still for a while at an image.
func qemuHangs(image func(*callGuest, *testing.T) string) *callBlow {
	return &callBlow{program: syscalls.QEMU, does: syscalls.Stop, image: image, back: func(c *callGuest, t *testing.T) {
		goesOn(t, c.pid(t))
	}}
}

// libvirtdHangs is the blow of a libvirtd that stands still for a while.
func libvirtdHangs() *callBlow {
	return &callBlow{program: syscalls.Libvirtd, does: syscalls.Stop, back: func(c *callGuest, t *testing.T) {
		goesOn(t, c.host.Libvirtd.PID())
	}}
}

// qemuImgDies and qemuImgHangs are the blows of a qemu-img that dies, or stands still for a while,
// at an image of the host.
func qemuImgDies() *callBlow {
	return &callBlow{program: syscalls.QemuImg, does: syscalls.Kill, image: anywhere, back: func(*callGuest, *testing.T) {}}
}

func qemuImgHangs() *callBlow {
	return &callBlow{program: syscalls.QemuImg, does: syscalls.Stop, image: anywhere, back: func(c *callGuest, t *testing.T) {
		<-time.After(hang)
		// The daemon, which paces it, may have let it go on before that.
		for _, pid := range childrenOf(t, c.host.DaemonPID()) {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}}
}

// goesOn lets a process that stands still go on after a while.
func goesOn(t *testing.T, pid int) {
	t.Helper()
	<-time.After(hang)
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// childrenOf are the children of a process.
func childrenOf(t *testing.T, parent int) (children []int) {
	t.Helper()
	lists, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(parent), "task", "*", "children"))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may be gone
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				children = append(children, pid)
			}
		}
	}
	return children
}

// foldInCalls is the end of a stopped guest's move, whose overlay has something to fold.
func foldInCalls(begin func(*guest, *testing.T) []string) *callTrial {
	return (&callTrial{begin: func(c *callGuest, t *testing.T) []string { return begin(c.guest, t) }}).stopped()
}

// reformatInCalls is the move of a stopped guest's disk to the other format.
func reformatInCalls() *callTrial {
	return (&callTrial{begin: func(c *callGuest, t *testing.T) []string {
		other := api.FormatQcow2
		if c.volume(t, "vda").Location.Format == other {
			other = api.FormatRaw
		}
		return append(c.moveElsewhere(t), "--to-format", string(other))
	}}).stopped()
}

// resizeInCalls is the growth of the guest's disk.
func resizeInCalls() *callTrial {
	size := func(c *callGuest) int { return volumeBytes + c.grown }
	return &callTrial{
		begin: func(c *callGuest, t *testing.T) []string {
			c.startsAgain(t)
			c.grown += 1 << 20
			return resizeArgs(c.volumeName("vda"), size(c))
		},
		ended: func(c *callGuest, t *testing.T, answer error) string {
			end := "went on"
			if answer != nil {
				end = "asked again"
				t.Logf("the answer: %v", answer)
				if c.state(t) == "shut off" {
					c.powersOn(t)
				}
				c.host.ctl(t, resizeArgs(c.volumeName("vda"), size(c))...)
			}
			if c.state(t) == "shut off" {
				c.powersOn(t)
			}
			c.sees(t, size(c))
			c.assertSize(t, size(c))
			c.assertSettledAndGoOn(t)
			c.assertMonitorAgrees(t)
			return end
		},
	}
}

// powersOn starts the guest with whatever size its disk has, and has it write.
func (c *callGuest) powersOn(t *testing.T) {
	t.Helper()
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.write(t)
}

// forEachCall runs a test for each of some requests, each with a guest of its own.
func forEachCall(t *testing.T, requests map[string]func() *callTrial, blow func() *callBlow) {
	t.Helper()
	requireParallel(t)
	for name, request := range requests {
		t.Run(name, func(t *testing.T) { request().strikeAtEach(t, newCallGuest(t), blow()) })
	}
}

// Of the requests for which qemu-img runs.
var qemuImgRequests = map[string]func() *callTrial{
	"complete": func() *callTrial { return foldInCalls((*guest).runThenComplete) },
	"cancel":   func() *callTrial { return foldInCalls((*guest).runThenCancel) },
	"move":     func() *callTrial { return moveInCalls().stopped() },
	"reformat": reformatInCalls,
}

func TestKillOfQemuImgAtEverySystemCallOnAnImage(t *testing.T) {
	leftToTestE2E(t)
	requests := qemuImgRequests
	if !everyCrash() {
		requests = map[string]func() *callTrial{"complete": requests["complete"], "move": requests["move"]}
	}
	forEachCall(t, requests, qemuImgDies)
}

func TestAHangOfQemuImgAtEverySystemCallOnAnImage(t *testing.T) {
	leftToTestCrash(t)
	forEachCall(t, qemuImgRequests, qemuImgHangs)
}

// Of the requests by which a guest's images change, at these.
var qemuRequests = []struct {
	name    string
	request func() *callTrial
	image   func(*callGuest, *testing.T) string
}{
	{"move/dst", moveInCalls, atPool(toPool)},
	{"move/overlay", moveInCalls, atOverlays},
	{"cancel/src", cancelInCalls, atPool(fromPool)},
	{"cancel/overlay", cancelInCalls, atOverlays},
	{"resize", resizeInCalls, anywhere},
	{"attach", func() *callTrial { return plugInCalls(false) }, anywhere},
	{"detach", func() *callTrial { return plugInCalls(true) }, anywhere},
}

func strikeQEMU(t *testing.T, blow func(func(*callGuest, *testing.T) string) *callBlow) {
	t.Helper()
	requireParallel(t)
	for _, r := range qemuRequests {
		t.Run(r.name, func(t *testing.T) { r.request().strikeAtEach(t, newCallGuest(t), blow(r.image)) })
	}
}

func TestKillOfQEMUAtEverySystemCallOnAnImage(t *testing.T) {
	leftToTestCrash(t)
	strikeQEMU(t, qemuDies)
}

func TestAHangOfQEMUAtEverySystemCallOnAnImage(t *testing.T) {
	leftToTestCrash(t)
	strikeQEMU(t, qemuHangs)
}

// Of the requests for which libvirtd is called.
var libvirtdRequests = map[string]func() *callTrial{
	"move":             moveInCalls,
	"cancel":           cancelInCalls,
	"move, stopped":    func() *callTrial { return moveInCalls().stopped() },
	"cancel, stopped":  func() *callTrial { return cancelInCalls().stopped() },
	"resize":           resizeInCalls,
	"attach":           func() *callTrial { return plugInCalls(false) },
	"detach":           func() *callTrial { return plugInCalls(true) },
	"start of a guest": func() *callTrial { return powerInCalls("start", "shut off", "running") },
	"stop of a guest":  func() *callTrial { return powerInCalls("stop", "running", "shut off") },
}

func TestAHangOfLibvirtdAtEverySystemCallOfARequest(t *testing.T) {
	leftToTestCrash(t)
	forEachCall(t, libvirtdRequests, libvirtdHangs)
}

func TestKillOfLibvirtdAtEverySystemCallOfAResize(t *testing.T) {
	resizeInCalls().strikeAtEach(t, inCalls(t), libvirtdDies())
}
