// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// wantBack checks that the host lost web's volume and is back in this epoch.
func (w *world) wantBack(epoch int64) {
	w.t.Helper()
	if got := w.state(web); got != hv.StateStopped {
		w.t.Errorf("the instance that lost its volume is %s", got)
	}
	if got := w.state(db); got != hv.StateRunning {
		w.t.Errorf("the instance that lost nothing is %s", got)
	}
	if diff := cmp.Diff([]string{web}, w.guards.Guarded()); diff != "" {
		w.t.Errorf("guards (-want +got)\n%s", diff)
	}
	if _, got := w.up.Token(); got != epoch || w.up.Fence() != nil || !w.up.Up() {
		w.t.Errorf("the host is in epoch %d (fence %v, error %v), want %d", got, w.up.Fence(), w.up.Err(), epoch)
	}
	if err := w.up.Admit(); err != nil || !w.ops.run() {
		w.t.Errorf("ops run: %t, new ones are refused with %v", w.ops.run(), err)
	}
	if w.registry.fenced {
		w.t.Error("the registry has the host as fenced")
	}
}

func TestAFencedHostLetsGoOfWhatItLostAndComesBack(t *testing.T) {
	running(t, func(w *world) {
		w.registry.fence(attachment("web"))
		pass(time.Minute)
		w.wantBack(2)
		if !strings.Contains(w.guards.Reasons(web), "web-disk") || !strings.Contains(w.guards.Reasons(web), "[fence]") {
			t.Errorf("the guard says %q", w.guards.Reasons(web))
		}
		w.kill()
		w.start() // the epoch and the lost disks are stored
		pass(time.Minute)
		w.wantBack(2)
		if lost := w.up.Lost(); len(lost) != 1 || lost[0].Target != "vda" || lost[0].Path != "/nfs/web.raw" {
			t.Errorf("lost %+v", lost)
		}
	})
}

// Every call between the fence and the return fails once: before its effect, after it, by the
// daemon's death, and by the death of a registry, which then admits a host only after a report.
func TestAFenceSurvivesEveryInterruption(t *testing.T) {
	for _, how := range []string{"fails", "fails after its effect", "kills", "kills after its effect", "ends the registry", "ends the registry after its effect"} {
		t.Run(how, func(t *testing.T) {
			for n := 1; ; n++ {
				name := interrupted(t, n, how)
				if name == "" {
					if n < 8 {
						t.Errorf("only %d calls were interrupted", n-1)
					}
					return
				}
				if t.Failed() {
					t.Fatalf("call %d (%s) %s", n, name, how)
				}
			}
		})
	}
}

// interrupted returns the interrupted call, "" if there were fewer calls.
func interrupted(t *testing.T, n int, how string) (name string) {
	die := strings.HasPrefix(how, "kills")
	running(t, func(w *world) {
		h := hosttest.Happening{After: strings.Contains(how, "after"), Lose: true, Err: errBoom}
		if strings.HasPrefix(how, "ends") {
			h.Do = func() { w.registry.set(func() { w.registry.justStarted = true }) }
		}
		w.registry.fence(attachment("web"))
		name = w.interrupted(n, h, die)
		if die && name != "" {
			if len(w.guards.Guarded()) == 0 && w.state(web) != hv.StateRunning {
				t.Error("an instance is off and was not guarded first")
			}
			w.start()
		}
		pass(time.Minute)
		w.wantBack(2)
	})
	return name
}

// No work begins, and the registry gets no change, while the host cannot see which guests it must
// stop.
func TestAHostThatCannotTellStaysFenced(t *testing.T) {
	running(t, func(w *world) {
		w.fake.Disconnect()
		w.registry.fence(attachment("web"))
		pass(time.Hour)
		if err := w.up.Admit(); api.CodeOf(err) != api.CodeStaleEpoch || w.ops.run() || !w.registry.fenced {
			t.Errorf("admitted: %v, ops run: %t, fenced at the registry: %t", err, w.ops.run(), w.registry.fenced)
		}
		w.fake.Reconnect()
		pass(time.Minute)
		w.wantBack(2)
	})
}

func TestAGuestThatCannotBeStoppedKeepsTheHostFenced(t *testing.T) {
	bubble(t, func(w *world) {
		w.specialHV = stubborn{w.hv}
		w.start()
		pass(time.Minute)
		w.registry.fence(attachment("web"))
		pass(time.Minute)
		if !w.registry.fenced || w.up.Fence() == nil {
			t.Error("the host is back with a guest that has what it lost")
		}
		w.kill()
	})
}

// stubborn is a hypervisor that reports a stop without stopping the guest.
type stubborn struct{ *hosttest.Hypervisor }

func (stubborn) PowerOff(context.Context, string) error { return nil }

func TestAHostThatIsFencedAgainOnItsWayBackLooksAgain(t *testing.T) {
	running(t, func(w *world) {
		w.fake.Disconnect()
		w.registry.fence()
		pass(time.Minute)
		w.registry.fence(attachment("web"))
		w.fake.Reconnect()
		pass(time.Minute)
		w.wantBack(3)
	})
}

// Grants after the last view are found, too.
func TestAGrantIsLostAsMuchAsWhatTheViewHas(t *testing.T) {
	running(t, func(w *world) {
		w.must(w.up.grant(granted("mail", mail, "/nfs/mail.raw")))
		w.define("mail", mail, "/nfs/mail.raw")
		w.must(w.fake.Start(mail))
		w.kill() // and stored
		w.registry.fence()
		w.start()
		pass(time.Minute)
		if w.state(mail) != hv.StateStopped || !slices.Contains(w.guards.Guarded(), mail) {
			t.Errorf("the instance is %s, guards %v", w.state(mail), w.guards.Guarded())
		}
	})
}

// The registry is read between the fence and the report that reveals it: a volume missing then must
// not be forgotten.
func TestWhatIsReadFromAHostThatIsFencedDoesNotCount(t *testing.T) {
	bubble(t, func(w *world) {
		r := &fencedWhenRead{registry: w.registry}
		w.specialRegistry = r
		w.start()
		pass(time.Minute)
		r.due.Store(true)
		w.registry.set(func() {}) // a change, so that it is read
		pass(time.Minute)
		w.wantBack(2)
		w.kill()
	})
}

// fencedWhenRead fences the host, once, when its attachments are about to be read.
type fencedWhenRead struct {
	*registry
	due atomic.Bool
}

func (r *fencedWhenRead) Hosts(ctx context.Context) ([]api.Host, error) {
	if r.due.CompareAndSwap(true, false) {
		r.fence(attachment("web"))
	}
	return r.registry.Hosts(ctx)
}

func TestTwoInstancesWithOneVolumeLoseItOneByOne(t *testing.T) {
	bubble(t, func(w *world) {
		w.define("mail", mail, "/nfs/web.raw")
		w.must(w.fake.Start(mail))
		w.registry.attachments = append(w.registry.attachments, granted("mail", mail, "/nfs/web.raw"))
		w.start()
		pass(time.Minute)
		w.registry.fence(attachment("web"))
		pass(time.Minute)
		w.wantBack(2)
		if w.state(mail) != hv.StateRunning {
			t.Errorf("the instance whose attachment is its own is %s", w.state(mail))
		}
		w.kill()
	})
}

// A registry from a backup lacks attachments that were never taken. It may be from the time of an
// ended fence.
func TestARegistryThatIsOlderThanTheHostStopsNobody(t *testing.T) {
	for name, restore := range map[string]func(*registry){
		"before the fence": func(r *registry) { r.SetNewest(thisHost, 2) },
		"in the fence":     func(r *registry) { r.fenced = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.registry.SetNewest(thisHost, 3)
				w.must(os.WriteFile(filepath.Join(w.dir, "uplink.json"), []byte(`{"epoch":3}`), 0o600))
				w.start()
				pass(time.Minute)
				w.registry.set(func() { restore(w.registry); w.registry.attachments = nil })
				pass(time.Minute)
				if w.state(web) != hv.StateRunning || len(w.guards.Guarded()) > 0 || w.up.Fence() != nil {
					t.Errorf("web is %s, guards %v, fence %v", w.state(web), w.guards.Guarded(), w.up.Fence())
				}
				if w.up.Up() || !strings.Contains(fmt.Sprint(w.up.Err()), "backup") {
					t.Errorf("the registry is up (%v)", w.up.Err())
				}
				w.kill()
			})
		})
	}
}

func TestTheGuardGoesWithTheLostDisk(t *testing.T) {
	running(t, func(w *world) {
		w.registry.fence(attachment("web"))
		pass(time.Minute)
		w.wantBack(2)
		w.must(w.fake.Undefine(web))
		w.define("web", web, "/local/new.raw")
		pass(time.Minute)
		if len(w.guards.Guarded()) > 0 || len(w.up.Lost()) > 0 {
			t.Errorf("guards %v, lost %+v", w.guards.Guarded(), w.up.Lost())
		}
	})
}

func TestAMemoryThatCannotBeReadIsNotDoneWithout(t *testing.T) {
	for _, name := range []string{"uplink.json", "registry-view.json"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{torn"), 0o600); err != nil {
			t.Fatal(err)
		}
		state, err := OpenState(dir)
		if err == nil {
			_, err = New(Config{HostID: thisHost, State: state})
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error that names %s", err, name)
		}
	}
}

// The attachment still exists, but is another host's: the instance was taken over.
func TestAnAttachmentThatIsAnotherHostsNowIsLost(t *testing.T) {
	running(t, func(w *world) {
		w.registry.fence()
		w.registry.set(func() { w.registry.attachments[0].Host = "beta" })
		pass(time.Minute)
		w.wantBack(2)
	})
}
