// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fickle is a Probe.Try under control of the test.
type fickle struct {
	err  atomic.Pointer[error] // nil: the try succeeds
	hang chan struct{}         // not nil: the try blocks until it is closed
}

func failing(err error) *fickle {
	f := new(fickle)
	f.err.Store(&err)
	return f
}

func (f *fickle) try(ctx context.Context) error {
	if f.hang != nil {
		select {
		case <-f.hang:
		case <-ctx.Done():
		}
	}
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

// watched runs test in a bubble, with the health of a program with these tasks.
func watched(t *testing.T, h *Health, tasks []Task, test func(t *testing.T)) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); h.watch(ctx, quietLog, tasks) }()
	synctest.Wait()
	test(t)
	cancel()
	<-done
}

// says returns the status and the lines of an endpoint.
func says(t *testing.T, h *Health, path string) (int, []string) {
	t.Helper()
	w := httptest.NewRecorder()
	m := MetricsServer("", http.NotFoundHandler(), h, quietLog)
	m.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
}

func wantSaid(t *testing.T, h *Health, path string, status int, lines ...string) {
	t.Helper()
	got, said := says(t, h, path)
	if diff := cmp.Diff(lines, said); got != status || diff != "" {
		t.Errorf("%s = %d, want %d; lines (-want +got)\n%s", path, got, status, diff)
	}
}

// pass lets time pass and runs the events that are due.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

type started struct{ ready chan struct{} }

func (s *started) Run(context.Context) error { return nil }
func (s *started) Ready() <-chan struct{}    { return s.ready }
func (s *started) String() string            { return "socket" }

func TestAProgramIsReadyWhenItsTasksProbesAndConditionsAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal, away := failing(errors.New("disk full")), errors.New("libvirt is away")
		h := NewHealth([]Probe{{Name: "journal", Try: journal.try}}, Condition{"libvirt", func() error { return away }})
		wantSaid(t, h, "/readyz", 503, "fail tasks: starting", "fail journal: not tried yet", "fail libvirt: libvirt is away")
		socket := &started{make(chan struct{})}
		watched(t, h, []Task{socket}, func(t *testing.T) {
			wantSaid(t, h, "/readyz", 503, "fail tasks: starting: socket", "fail journal: disk full", "fail libvirt: libvirt is away")
			close(socket.ready)
			away = nil
			wantSaid(t, h, "/readyz", 503, "ok tasks", "fail journal: disk full", "ok libvirt")
			if h.Up("journal") {
				t.Error("a probe that fails is up")
			}
			journal.err.Store(nil)
			pass(probeEvery + time.Second)
			wantSaid(t, h, "/readyz", 200, "ok tasks", "ok journal", "ok libvirt")
			if !h.Up("journal") || h.Up("other") {
				t.Error("a probe that succeeds is not up, or one is that there is not")
			}
		})
	})
}

func TestAProbeThatHangsIsSoonNotReadyAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := &fickle{hang: make(chan struct{})}
		h := NewHealth([]Probe{{Name: "journal", Try: journal.try}})
		watched(t, h, []Task{}, func(t *testing.T) {
			pass(slowAfter + 2*time.Second)
			wantSaid(t, h, "/readyz", 503, "ok tasks", "fail journal: no answer for 12s")
			close(journal.hang)
			synctest.Wait()
			wantSaid(t, h, "/readyz", 200, "ok tasks", "ok journal")
		})
	})
}

// A restart helps a program that hangs. It does not help with a full disk: a program that reports
// it is better than a program that is killed again and again.
func TestAProgramIsDeadOnlyWhileAVitalProbeHangs(t *testing.T) {
	for name, c := range map[string]struct {
		vital, hangs bool
		err          error
		code         int
		line         string
	}{
		"a vital probe hangs": {vital: true, hangs: true, code: 503, line: "fail journal: no answer for 2m1s"},
		"a vital probe fails": {vital: true, err: errors.New("disk full"), code: 200, line: "ok journal"},
		"another probe hangs": {hangs: true, code: 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := failing(c.err)
				if c.hangs {
					f.hang = make(chan struct{})
				}
				h := NewHealth([]Probe{{Name: "journal", Vital: c.vital, Try: f.try}})
				watched(t, h, []Task{}, func(t *testing.T) {
					pass(stuckAfter - time.Second)
					if code, said := says(t, h, "/healthz"); code != 200 {
						t.Errorf("a second before it is too long: %d %q", code, said)
					}
					pass(2 * time.Second)
					wantSaid(t, h, "/healthz", c.code, c.line)
				})
			})
		})
	}
}

func TestTheWatchdogIsToldNoMoreWhileAVitalProbeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &fickle{hang: make(chan struct{})}
		h := NewHealth([]Probe{{Name: "engine", Vital: true, Try: engine.try}})
		watched(t, h, []Task{}, func(t *testing.T) {
			n := 0
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go eachWhileAlive(ctx, quietLog, 30*time.Second, h, func() { n++ })
			pass(stuckAfter + time.Second)
			if n != 4 {
				t.Errorf("in %s it was told %d times, want 4", stuckAfter, n)
			}
			pass(10 * time.Minute)
			if n != 4 {
				t.Errorf("while the engine hangs it was told %d times more", n-4)
			}
			close(engine.hang)
			pass(time.Minute)
			if n != 6 {
				t.Errorf("once the engine goes on it was told %d times in a minute, want 2", n-4)
			}
		})
	})
}
