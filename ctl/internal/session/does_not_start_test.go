// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/volferry/volferry/ctl/internal/unit"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// held returns a session at a socket of systemd; the unit has these states in order.
func held(t *testing.T, states ...unit.State) (s *Session, l net.Listener) {
	t.Helper()
	c, l := silent(t)
	var asked atomic.Int32
	return &Session{Client: c, Stderr: new(bytes.Buffer), Progress: ProgressNone, ShowUnit: func(context.Context, string) (unit.State, error) {
		return states[min(int(asked.Add(1)), len(states))-1], nil
	}}, l
}

// between returns the state of a unit between two starts, after its nth failure.
func between(n int) unit.State {
	return unit.State{Active: "activating", Sub: "auto-restart", Result: "exit-code", Restarts: n, StatusText: api.UnitFailed + "overlay_dir is in memory"}
}

var (
	starting = unit.State{Active: "activating", Sub: "start", Result: "success"}
	running  = unit.State{Active: "active", Sub: "running", Result: "success"}
)

func TestARequestToADaemonThatDoesNotStartEndsSoonAndSaysWhy(t *testing.T) {
	failed := unit.State{Active: "failed", Sub: "failed", Result: "exit-code", StatusText: api.UnitFailed + "overlay_dir is in memory"}
	for _, c := range []struct {
		name   string
		states []unit.State
		advice string
	}{
		{"systemd tries again and again", []unit.State{starting, between(3), between(3), starting, between(4)}, "systemd tries again"},
		{"systemd has given up", []unit.State{failed}, "systemctl reset-failed volferryd.service volferryd.socket"},
	} {
		for what, ask := range map[string]func(*Session) error{
			"a read":   func(s *Session) error { _, err := Get(t.Context(), s, routes.RunDoctor); return err },
			"a change": func(s *Session) error { _, err := Send(t.Context(), s, routes.FixDoctor, routes.None{}); return err },
			"a stream": func(s *Session) error {
				f := Follower{Open: Events(s, routes.FollowOp, "op"), OnOutage: func(error) {}, Ended: func(context.Context) (bool, error) { return false, nil }}
				return f.Run(t.Context(), 0, func(api.Event) bool { return true })
			},
		} {
			t.Run(c.name+", "+what, func(t *testing.T) {
				s, _ := held(t, c.states...)
				began := time.Now()
				err := ask(s)
				var advised *AdvisedError
				if !errors.As(err, &advised) || advised.Exit != api.ExitUnavailable || advised.Err.Code != api.CodeHypervisorUnavailable ||
					advised.Err.Message != "volferryd does not start: overlay_dir is in memory" ||
					!strings.Contains(advised.Advice, "journalctl -u volferryd") || !strings.Contains(advised.Advice, c.advice) {
					t.Errorf("error %v, %+v", err, advised)
				}
				if took := time.Since(began); took > readTimeout/4 {
					t.Errorf("it took %s", took)
				}
			})
		}
	}
}

// A request in the socket of a daemon that does not start would be carried out at its later start.
func TestNoChangeIsSentToADaemonThatDoesNotStart(t *testing.T) {
	s, l := held(t, between(3), between(4))
	if _, err := Send(t.Context(), s, routes.DeleteVolume, routes.None{}, "db"); !IsStartFailure(err) {
		t.Fatalf("a change: %v", err)
	}
	var asked atomic.Int32
	done := make(chan struct{})
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("it was sent %s %s", r.Method, r.URL)
		}
		if asked.Add(1) == 1 {
			close(done)
		}
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	<-done // like a daemon that starts later
}

// A daemon that was killed or restarted is back in a moment.
func TestARequestWaitsForADaemonThatIsBeingStarted(t *testing.T) {
	for name, states := range map[string][]unit.State{
		"it died once and is started again": {between(1), between(1), starting, running},
		"it takes its time":                 {starting, starting, starting, starting, running},
		"it is up and takes its time":       {running},
		"it has died again":                 {between(7), running},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, l := held(t, states...)
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"schema_version":1,"volumes":[]}`))
			}))
			_ = srv.Listener.Close()
			srv.Listener = l
			begun := s.ShowUnit
			s.ShowUnit = func(ctx context.Context, name string) (unit.State, error) {
				now, err := begun(ctx, name)
				if now.Up() {
					srv.Start()
				}
				return now, err
			}
			t.Cleanup(srv.Close)
			if _, _, err := List(t.Context(), s, routes.ListVolumes); err != nil {
				t.Errorf("a read: %v", err)
			}
		})
	}
}
