// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/store"
)

// bubble runs f with a site with the present hosts a and b and one object of every kind of a, in a
// bubble.
func bubble(t *testing.T, f func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.fill(t)
		s.fetch(t, hostID)
		s.fetch(t, otherID)
		// Finish the task that fill has left for host a.
		s.reply(t, hostID, taskOfA, 200, `{}`)
		f(t, s)
	})
}

// pass advances the fake time.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // fake time
	synctest.Wait()
}

// fetch polls once for a host.
func (s *site) fetch(t *testing.T, host string) []api.Task {
	t.Helper()
	return s.fetchAs(t, host, "s")
}

// fetchAs is fetch by a daemon with its own session.
func (s *site) fetchAs(t *testing.T, host, session string) []api.Task {
	t.Helper()
	return expect.Value(s.relay.Fetch(t.Context(), store.Call{}, host, session, 0, func() error { return nil }))(t)
}

func (s *site) reply(t *testing.T, host, task string, status int, body string) {
	t.Helper()
	expect.OK(t, s.relay.Answer(t.Context(), store.Call{}, host, task, api.TaskAnswer{Status: status, Body: json.RawMessage(body)}))
}

// pending is a request in progress.
type pending struct {
	w    *recorder
	done chan struct{}
	end  context.CancelFunc
}

// begin sends a request as root, and returns when it is done or the registry waits.
func (s *site) begin(t *testing.T, method, path, key, body string) *pending {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := speaker{key: key}.request(ctx, method, path, body)
	p := &pending{w: &recorder{header: http.Header{}}, done: make(chan struct{}), end: cancel}
	go func() {
		defer close(p.done)
		s.handler.ServeHTTP(p.w, r)
	}()
	synctest.Wait()
	return p
}

func (p *pending) answer() (status int, body string) {
	<-p.done
	return p.w.status, strings.TrimSpace(p.w.text())
}

func (p *pending) code() api.Code {
	_, body := p.answer()
	if e := expect.Refusal([]byte(body)); e != nil {
		return e.Code
	}
	return api.Code("none: " + body)
}

// events returns the lines of a stream so far.
func (p *pending) events(t *testing.T) []api.Event {
	t.Helper()
	var all []api.Event
	for line := range strings.Lines(p.w.text()) {
		var e api.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// over reports whether the answer has ended.
func (p *pending) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// recorder is a connection that supports streams.
type recorder struct {
	mu     sync.Mutex
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.body.Write(b)
}

func (w *recorder) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.body.String()
}

// Flush and SetWriteDeadline are needed by streams.
func (w *recorder) Flush()                           {}
func (w *recorder) SetWriteDeadline(time.Time) error { return nil }

func decode(t *testing.T, raw json.RawMessage, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("decode %s: %v", raw, err)
	}
}
