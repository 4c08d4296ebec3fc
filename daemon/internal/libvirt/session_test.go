// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func TestErrorsKeepLibvirtsWordsAndGainAKind(t *testing.T) {
	for code, want := range kinds {
		err := classify(fmt.Errorf("get XML: %w", golibvirt.Error{Code: uint32(code), Message: "said libvirt"}))
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "said libvirt") {
			t.Errorf("classify(code %d) = %v, want %v with libvirt's message", code, err, want)
		}
	}
}

// libvirt refuses a block job on a disk with a running backup as an unsupported operation.
func TestADiskInABlockJobIsBusyWhateverTheCode(t *testing.T) {
	err := classify(golibvirt.Error{Code: uint32(golibvirt.ErrOperationUnsupported), Message: "disk 'vda' already in active block job"})
	if !errors.Is(err, hv.ErrBusy) || errors.Is(err, hv.ErrUnsupported) {
		t.Errorf("classify = %v, want ErrBusy alone", err)
	}
}

func TestLostAnswersLeaveTheOutcomeUnknown(t *testing.T) {
	for _, err := range []error{golibvirt.ErrInterrupted, syscall.EINVAL, errors.New("cannot decode")} {
		if got := classify(err); !errors.Is(got, hv.ErrUnavailable) || !errors.Is(got, err) {
			t.Errorf("classify(%v) = %v, want ErrUnavailable", err, got)
		}
	}
	if classify(nil) != nil {
		t.Error("classify(nil) is an error")
	}
	refusal := golibvirt.Error{Code: uint32(golibvirt.ErrInternalError), Message: "no"}
	if got := classify(refusal); errors.Is(got, hv.ErrUnavailable) {
		t.Errorf("classify(a refusal) = %v: its outcome is known", got)
	}
}

// deafServer accepts connections and never answers.
func deafServer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return path
}

func TestConnectingToADeafServerEnds(t *testing.T) {
	c := New(Config{Socket: deafServer(t), CallTimeout: 20 * time.Millisecond})
	_, err := c.dial(t.Context())
	if !errors.Is(err, hv.ErrUnavailable) {
		t.Errorf("dial = %v, want ErrUnavailable", err)
	}
}

func TestACallerMayLeaveWithoutEndingTheSession(t *testing.T) {
	conn, _ := net.Pipe()
	s := &session{
		conn:  &watchedConn{Conn: conn, lost: make(chan struct{})},
		slots: make(chan struct{}, maxInFlight),
	}
	ctx, cancel := context.WithCancel(t.Context())
	release, started := make(chan struct{}), make(chan struct{})
	defer close(release)
	go func() {
		<-started
		cancel()
	}()
	_, err := callWithin(ctx, s, time.Hour, func(*golibvirt.Libvirt) (none, error) {
		close(started)
		<-release
		return none{}, nil
	})
	if !errors.Is(err, hv.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("call = %v, want ErrUnavailable and the context's error", err)
	}
	select {
	case <-s.lost():
		t.Error("the session was closed")
	default:
	}
}

// An abandoned change takes effect later, after the caller has looked.
func TestAChangeIsNotLeftWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := net.Pipe()
		s := &session{
			conn:  &watchedConn{Conn: conn, lost: make(chan struct{})},
			slots: make(chan struct{}), // all are taken

			callTimeout: time.Hour,
		}
		c := New(Config{})
		c.setLink(&link{reads: s, changes: s, windows: s, jobEnds: s})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Suspend(ctx, "5f6d9a53-0000-4000-8000-000000000001") }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Suspend = %v while nobody knows what becomes of it", err)
		default:
		}
		s.close()
		if err := <-done; !errors.Is(err, hv.ErrUnavailable) {
			t.Errorf("Suspend = %v on a session that ended, want ErrUnavailable", err)
		}
		if err := c.Suspend(ctx, "5f6d9a53-0000-4000-8000-000000000001"); !errors.Is(err, context.Canceled) {
			t.Errorf("Suspend = %v with a context that is over, want not to be made", err)
		}
	})
}

func TestEveryCallIsUnavailableBeforeTheFirstConnection(t *testing.T) {
	c := New(Config{Socket: filepath.Join(t.TempDir(), "none")})
	if _, err := c.Domains(t.Context()); !errors.Is(err, hv.ErrUnavailable) {
		t.Errorf("Domains = %v, want ErrUnavailable", err)
	}
	if err := c.Pivot(t.Context(), "5f6d9a53-0000-4000-8000-000000000001", "vda"); !errors.Is(err, hv.ErrUnavailable) {
		t.Errorf("Pivot = %v, want ErrUnavailable", err)
	}
	if c.Up() {
		t.Error("Up() = true")
	}
}

func TestRunEndsWithItsContextWhileLibvirtIsAway(t *testing.T) {
	c := New(Config{Socket: filepath.Join(t.TempDir(), "none")})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	<-c.Ready() // a libvirtd that is down does not delay readiness
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

func TestStatesThatAreNeitherRunningNorOffForGood(t *testing.T) {
	for _, c := range []struct {
		state  golibvirt.DomainState
		reason golibvirt.DomainPausedReason
		want   hv.State
		pause  hv.PauseReason
	}{
		{golibvirt.DomainRunning, 0, hv.StateRunning, ""},
		{golibvirt.DomainShutoff, 0, hv.StateStopped, ""},
		{golibvirt.DomainShutdown, 0, hv.StateOther, ""},
		{golibvirt.DomainCrashed, 0, hv.StateOther, hv.PauseCrashed},
		{golibvirt.DomainPmsuspended, 0, hv.StateOther, hv.PauseAsleep},
		{golibvirt.DomainPaused, golibvirt.DomainPausedUser, hv.StatePaused, hv.PauseUser},
		{golibvirt.DomainPaused, golibvirt.DomainPausedIoerror, hv.StatePaused, hv.PauseIOError},
		{golibvirt.DomainPaused, golibvirt.DomainPausedWatchdog, hv.StatePaused, hv.PauseOther},
		{golibvirt.DomainPaused, golibvirt.DomainPausedSave, hv.StateOther, ""},
		{golibvirt.DomainPaused, golibvirt.DomainPausedMigration, hv.StateOther, ""},
	} {
		state, pause := stateOf(c.state, int32(c.reason))
		if state != c.want || pause != c.pause {
			t.Errorf("state %d reason %d = %s, %q; want %s, %q", c.state, c.reason, state, pause, c.want, c.pause)
		}
	}
}

func TestADomainIsMovedIfLibvirtSaysThatItIsOffForThat(t *testing.T) {
	for _, c := range []struct {
		state  golibvirt.DomainState
		reason int32
		want   bool
	}{
		{golibvirt.DomainShutoff, int32(golibvirt.DomainShutoffMigrated), true},
		{golibvirt.DomainShutoff, int32(golibvirt.DomainShutoffShutdown), false},
		{golibvirt.DomainShutoff, int32(golibvirt.DomainShutoffSaved), false},
		{golibvirt.DomainRunning, int32(golibvirt.DomainRunningRestored), false}, // the same number
	} {
		if got := movedAway(c.state, c.reason); got != c.want {
			t.Errorf("state %d reason %d: moved %t, want %t", c.state, c.reason, got, c.want)
		}
	}
}
