// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// What happens to the move of a stopped guest while qemu-img folds its overlay.

// foldDelay is how long the first writes of a fold may take at most until it stands still.
const foldDelay = "120000000" // microseconds, strace's unit

// fold is the end of a stopped guest's move, whose overlay has something to fold.
type fold struct {
	*move
	args []string // asks for the end
	into string   // the image that qemu-img writes to
	want api.MigrationState
	// other asks for the opposite end.
	other []string
}

var foldEnds = map[string]func(*guest, *testing.T) *fold{
	"complete": func(g *guest, t *testing.T) *fold {
		v := g.runThenStop(t)
		v.copy(t)
		return &fold{v, v.completeArgs(), v.Dst.Path, api.MigrationCompleted, v.cancelArgs()}
	},
	"cancel": func(g *guest, t *testing.T) *fold {
		v := g.runThenStop(t)
		v.copy(t)
		return &fold{v, v.cancelArgs(), v.Src.Path, api.MigrationCancelled, v.completeArgs()}
	},
}

// hold asks for the end and returns when qemu-img is about to write and stands still. It goes on
// when what is returned is called, unless it was killed.
func (f *fold) hold(t *testing.T) (goOn func()) {
	t.Helper()
	h := f.g.host
	letWrite := lab.Inject(t, h.DaemonPID(), "-P", f.into, "-e", "trace=pwrite64,pwritev,pwritev2",
		"-e", "inject=pwrite64,pwritev,pwritev2:delay_enter="+foldDelay)
	h.ctl(t, append([]string{"--no-wait"}, f.args...)...)
	var pids []int
	eventually(t, "qemu-img folds", func() bool {
		pids = foldersOf(t, f.into)
		return len(pids) == 1
	})
	stop := func() {
		if err := unix.Kill(pids[0], unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	letWrite() // a process that strace delays cannot be killed
	for !standsStill(t, pids[0]) {
		stop() // strace may take a signal with it when it lets go
	}
	return func() { _ = unix.Kill(pids[0], unix.SIGCONT) }
}

// standsStill reports whether a signal has stopped a process.
func standsStill(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), "State:\tT (stopped)")
}

// foldersOf are the processes of qemu-img that have an image open.
func foldersOf(t *testing.T, image string) (pids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err != nil || strings.TrimSpace(string(text)) != "qemu-img" {
			continue
		}
		process := filepath.Dir(name)
		files, _ := filepath.Glob(filepath.Join(process, "fd", "*"))
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil && slices.ContainsFunc(files, func(f string) bool {
			at, err := os.Readlink(f)
			return err == nil && at == image
		}) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ended claims that the end that was asked for has come, and nothing else.
func (f *fold) ended(t *testing.T) {
	t.Helper()
	h := f.g.host
	h.untilState(t, f.ID, f.want)
	f.g.endedRight(t, get[api.Migration](t, h, "migration", "migration", "show", f.ID), "shut off")
}

// refusesToStart claims that the hook refuses the guest, and volferryd if it is there.
func (f *fold) refusesToStart(t *testing.T) {
	t.Helper()
	h := f.g.host
	if _, err := h.Libvirtd.Virsh(t.Context(), "start", f.g.Name); err == nil {
		t.Error("libvirt has started the guest in the middle of its fold")
	} else {
		mustContain(t, err.Error(), f.ID)
	}
	if state := f.g.state(t); state != "shut off" {
		t.Errorf("the guest is %s", state)
	}
}

func TestWhatHappensInTheFoldOfAStoppedGuestLosesNothing(t *testing.T) {
	leftToTestE2E(t)
	events := []struct {
		name string
		do   func(f *fold, t *testing.T, goOn func())
	}{
		{"libvirtd is killed", func(f *fold, t *testing.T, goOn func()) {
			f.g.host.others()["libvirtd"](t)
			goOn()
		}},
		{"the registry is killed", func(f *fold, t *testing.T, goOn func()) {
			f.g.host.others()["registry"](t)
			goOn()
		}},
		{"the registry is away", func(f *fold, t *testing.T, goOn func()) {
			h := f.g.host
			back := h.loseRegistry(t)
			goOn()
			h.untilItWaitsForTheRegistry(t, f.ID)
			if left, err := os.ReadDir(h.Overlays()); err != nil || f.want == api.MigrationCompleted && len(left) != 1 {
				t.Errorf("overlays are %v (%v); the registry does not know yet where the volume is", left, err)
			}
			back(t)
		}},
		{"the guest is started", func(f *fold, t *testing.T, goOn func()) {
			h := f.g.host
			f.refusesToStart(t)
			h.mustFail(t, "instance", "start", f.g.Name)
			goOn()
		}},
		{"the same is asked for again", func(f *fold, t *testing.T, goOn func()) {
			h := f.g.host
			again := make(chan error, 1)
			go func() {
				_, err := h.Ctl(t.Context(), f.args...)
				again <- err
			}()
			goOn()
			if err := <-again; err != nil {
				t.Errorf("the same again: %v", err)
			}
			h.ctl(t, f.args...) // and when it is over
		}},
		{"the opposite is asked for", func(f *fold, t *testing.T, goOn func()) {
			h := f.g.host
			if f.want == api.MigrationCancelled {
				h.mustFail(t, f.other...)
				goOn()
				return
			}
			h.ctl(t, f.other...) // dst is not the volume before the fold is over
			f.want = api.MigrationCancelled
		}},
		{"the host goes down", func(f *fold, t *testing.T, goOn func()) {
			h := f.g.host
			h.KillDaemon()
			eventually(t, "qemu-img has died with the daemon", func() bool { return len(foldersOf(t, f.into)) == 0 })
			h.KillRegistry()
			h.virsh(t, "autostart", f.g.Name)
			log := h.libvirtBoots(t)
			eventually(t, "libvirt tries to start the guest", func() bool { return strings.Contains(log(), "'"+f.g.Name+"'") })
			f.refusesToStart(t)
			h.virsh(t, "autostart", "--disable", f.g.Name)
			if err := h.StartRegistry(context.WithoutCancel(t.Context())); err != nil {
				t.Fatal(err)
			}
			if err := h.StartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for name, end := range foldEnds {
		t.Run(name, func(t *testing.T) {
			g := crashGuest(t)
			g.powerOff(t)
			for _, e := range events {
				if !t.Run(e.name, func(t *testing.T) {
					begin := time.Now()
					f := end(g, t)
					e.do(f, t, f.hold(t))
					f.ended(t)
					t.Logf("it took %s", time.Since(begin).Round(time.Second))
				}) {
					t.FailNow() // nothing is certain after it
				}
			}
			g.boot(t)
			g.assertSettled(t)
		})
	}
}
