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
	"github.com/volferry/volferry/test/crash"
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
		c.noteCut(t)
	}}
}

// qemuHangs is the blow of a guest whose process stands still for a while at an image.
func qemuHangs(image func(*callGuest, *testing.T) string) *callBlow {
	return &callBlow{program: syscalls.QEMU, does: syscalls.Stop, image: image, back: func(c *callGuest, t *testing.T) {
		goesOn(t, c.pid(t))
	}}
}

// qemuImgDies and qemuImgHangs are the blows of a qemu-img that dies, or stands still for a while,
// at an image of the host.
func qemuImgDies() *callBlow {
	return &callBlow{program: syscalls.QemuImg, does: syscalls.Kill, image: anywhere, back: func(*callGuest, *testing.T) {}}
}

func qemuImgHangs() *callBlow {
	return &callBlow{program: syscalls.QemuImg, does: syscalls.Stop, image: anywhere, back: childrenGoOn}
}

// childrenGoOn lets what the daemon and libvirtd run go on after a while. They may have done so
// before, or ended it.
func childrenGoOn(c *callGuest, t *testing.T) {
	t.Helper()
	<-time.After(hang)
	for _, parent := range []int{c.host.DaemonPID(), c.host.Libvirtd.PID()} {
		for _, pid := range childrenOf(t, parent) {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
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

// Of the requests for which qemu-img runs.
var qemuImgRequests = map[string]func() *callTrial{
	"complete": func() *callTrial { return foldInCalls((*guest).runThenComplete) },
	"cancel":   func() *callTrial { return foldInCalls((*guest).runThenCancel) },
	"move":     func() *callTrial { return moveInCalls().stopped() },
	"reformat": func() *callTrial { return reformatInCalls(api.FormatQcow2).stopped() },
}

func TestKillOfQemuImgAtEverySystemCallOnAnImage(t *testing.T) {
	leftToTestE2E(t)
	requests := qemuImgRequests
	if !crash.Every() {
		requests = map[string]func() *callTrial{"complete": requests["complete"], "move": requests["move"]}
	}
	forEachCall(t, requests, qemuImgDies)
}

func TestAHangOfQemuImgAtEverySystemCallOnAnImage(t *testing.T) {
	crash.LeftToTestCrash(t)
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
	{"move that keeps the base images/dst", keepBaseInCalls, atPool(toPool)},
	{"mirror/dst", mirrorInCalls, atPool(toPool)},
	{"cancel of a mirror/dst", cancelOfAMirrorInCalls, atPool(toPool)},
	{"cancel in a fold/dst", cancelOfAFoldInCalls, atPool(toPool)},
	{"cancel in a fold/src", cancelOfAFoldInCalls, atPool(fromPool)},
	{"cancel/src", cancelInCalls, atPool(fromPool)},
	{"cancel/overlay", cancelInCalls, atOverlays},
	{"resize", resizeInCalls, anywhere},
	{"attach", func() *callTrial { return plugInCalls("running", false) }, anywhere},
	{"detach", func() *callTrial { return plugInCalls("running", true) }, anywhere},
}

func strikeQEMU(t *testing.T, blow func(func(*callGuest, *testing.T) string) *callBlow) {
	t.Helper()
	requireParallel(t)
	for _, r := range qemuRequests {
		t.Run(r.name, func(t *testing.T) {
			crash.LeftToAnotherSeed(t)
			r.request().strikeAtEach(t, blow(r.image))
		})
	}
}

func TestKillOfQEMUAtEverySystemCallOnAnImage(t *testing.T) {
	crash.LeftToTestCrash(t)
	strikeQEMU(t, qemuDies)
}

func TestAHangOfQEMUAtEverySystemCallOnAnImage(t *testing.T) {
	crash.LeftToTestCrash(t)
	strikeQEMU(t, qemuHangs)
}
