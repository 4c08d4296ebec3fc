// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
)

// A guest with hanging storage makes attempts fail for 40 s, but the next guest is stopped, and
// itself guarded, without delay.
func TestAGuestThatCannotBeStoppedKeepsNoOtherRunning(t *testing.T) {
	bubble(t, func(w *world) {
		w.specialHV = hangingOff{w.hv}
		w.start()
		pass(time.Minute)
		w.registry.fence(attachment("web"), attachment("db"))
		pass(10 * time.Second)
		if got := w.guards.Guarded(); !slices.Equal(got, []string{web, db}) {
			t.Errorf("guards %v, want both", got)
		}
		if w.state(db) != hv.StateStopped {
			t.Errorf("db is %s because of web", w.state(db))
		}
		if w.state(web) == hv.StateStopped || !w.registry.fenced {
			t.Errorf("web is %s and the host fenced: %t", w.state(web), w.registry.fenced)
		}
		w.stop()
		w.must(<-w.ended)
	})
}

// hangingOff is a hypervisor that cannot stop web.
type hangingOff struct{ *hosttest.Hypervisor }

func (h hangingOff) PowerOff(ctx context.Context, id string) error {
	if id != web {
		return h.Hypervisor.PowerOff(ctx, id)
	}
	<-time.After(40 * time.Second)
	return errors.New("failed to terminate process with SIGKILL")
}

// It does not wait for an operation that takes hours.
func TestWhatIsLostIsStoppedBeforeTheOperationsAreHalted(t *testing.T) {
	bubble(t, func(w *world) {
		w.start()
		w.ops.slow(2 * time.Hour)
		pass(time.Minute)
		w.registry.fence(attachment("web"))
		pass(10 * time.Second)
		if w.state(web) != hv.StateStopped || !slices.Equal(w.guards.Guarded(), []string{web}) {
			t.Errorf("web is %s, guards %v", w.state(web), w.guards.Guarded())
		}
		if !w.registry.fenced {
			t.Error("the host is back with operations that are not halted")
		}
		// A guest that an operation starts during the halt is stopped too.
		w.must(w.fake.Start(web))
		pass(time.Minute)
		if w.state(web) != hv.StateStopped {
			t.Errorf("web is %s", w.state(web))
		}
		pass(3 * time.Hour)
		w.wantBack(2)
		w.kill()
	})
}

func TestADomainThatCannotBeReadHoldsUpNoFence(t *testing.T) {
	running(t, func(w *world) {
		w.fake.MakeUnreadable(db, errors.New("its XML ends in the middle"))
		w.registry.fence(attachment("web"))
		pass(time.Minute)
		w.fake.MakeUnreadable(db, nil)
		pass(time.Minute)
		w.wantBack(2)
	})
}

func TestADomainThatCannotBeReadAndLostItsVolumeIsStopped(t *testing.T) {
	for name, blind := range map[string]error{"it alone": nil, "and no other": errBoom} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.specialHV = blindHV{w.hv, blind}
				w.start()
				pass(time.Minute)
				w.fake.MakeUnreadable(web, errors.New("its XML ends in the middle"))
				w.registry.fence(attachment("web"))
				pass(10 * time.Second)
				if !w.registry.fenced {
					t.Error("the host is back and does not know whether web is off")
				}
				w.fake.MakeUnreadable(web, nil)
				if w.state(web) != hv.StateStopped || !slices.Equal(w.guards.Guarded(), []string{web}) {
					t.Errorf("web is %s, guards %v", w.state(web), w.guards.Guarded())
				}
				if w.state(db) != hv.StateRunning {
					t.Errorf("db is %s", w.state(db))
				}
				w.stop()
				w.must(<-w.ended)
			})
		})
	}
}

// blindHV is a hypervisor that does not list the domains.
type blindHV struct {
	*hosttest.Hypervisor
	err error
}

func (h blindHV) Domains(ctx context.Context) ([]hv.Domain, error) {
	if h.err != nil {
		return nil, h.err
	}
	return h.Hypervisor.Domains(ctx)
}

// A domain unreadable at the search, which has released the volume, is guarded and not stopped; the
// guard is cleared once that is seen.
func TestADomainThatIsReadInTimeAndLostNothingRunsOn(t *testing.T) {
	bubble(t, func(w *world) {
		w.define("mail", mail, "/nfs/mail.raw")
		w.must(w.fake.Start(mail))
		w.registry.attachments = append(w.registry.attachments, granted("mail", mail, "/nfs/other.raw"))
		w.specialHV = blindHV{w.hv, hv.ErrUnavailable}
		w.start()
		pass(time.Minute)
		w.kill()
		w.specialHV = nil
		w.registry.fence(attachment("mail"), attachment("web"))
		w.start()
		pass(time.Minute)
		if w.state(mail) != hv.StateRunning {
			t.Errorf("mail is %s, and lost nothing", w.state(mail))
		}
		w.wantBack(2)
		w.kill()
	})
}

const mail = "20000000-0000-4000-8000-000000000003"

// On a full disk neither the fence nor a guard can be stored: the guest is still stopped, and the
// host is back once there is space.
func TestAFenceBitesOnAFullDisk(t *testing.T) {
	running(t, func(w *world) {
		w.must(os.RemoveAll(w.dir)) // nothing can be written there now
		w.guards.Fill(syscall.ENOSPC)
		w.registry.fence(attachment("web"))
		pass(time.Minute)
		if w.state(web) != hv.StateStopped || !w.registry.fenced || w.up.Fence() == nil {
			t.Errorf("web is %s, fenced: %t, known: %v", w.state(web), w.registry.fenced, w.up.Fence())
		}
		w.must(os.MkdirAll(w.dir, 0o755))
		w.guards.Fill(nil)
		pass(time.Minute)
		w.wantBack(2)
		w.kill()
		w.start() // and the fence is stored
		pass(time.Minute)
		w.wantBack(2)
	})
}
