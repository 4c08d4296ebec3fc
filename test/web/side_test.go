// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// side is a made-up daemon or registry: documents, and an audit trail. What it does not
// have is not_found.
type side struct {
	socket string
	server *httptest.Server

	mu        sync.Mutex
	documents map[string]any // by noun
	trail     []api.Event
	more      chan struct{}
}

// paths are the routes of the nouns.
var paths = map[string]string{"/v1/doctor": "checks"}

func newSide(t *testing.T, documents map[string]any, trail []api.Event) *side {
	t.Helper()
	return newSideAt(t, filepath.Join(t.TempDir(), "s"), documents, trail)
}

func newSideAt(t *testing.T, socket string, documents map[string]any, trail []api.Event) *side {
	t.Helper()
	s := &side{socket: socket, documents: documents, trail: trail, more: make(chan struct{})}
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

func (s *side) start(t *testing.T) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", s.socket)
	must(t, err)
	s.server = httptest.NewUnstartedServer(s)
	_ = s.server.Listener.Close()
	s.server.Listener = l
	s.server.Start()
}

// stop breaks every connection, as a daemon does that dies.
func (s *side) stop() {
	if s.server != nil {
		_ = s.server.Listener.Close()
		s.server.CloseClientConnections()
		s.server.Close()
		s.server = nil
	}
}

// set changes a document.
func (s *side) set(noun string, document any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.documents[noun] = document
}

// tell adds an event to the trail.
func (s *side) tell(e api.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Seq = s.trail[len(s.trail)-1].Seq + 1
	s.trail = append(s.trail, e)
	close(s.more)
	s.more = make(chan struct{})
}

func (s *side) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/events" && s.trail != nil {
		s.events(w, r)
		return
	}
	noun, found := paths[r.URL.Path]
	if !found {
		noun = strings.TrimPrefix(r.URL.Path, "/v1/")
	}
	if r.URL.Query().Has("all") {
		noun += "?all"
	}
	s.mu.Lock()
	document, found := s.documents[noun]
	s.mu.Unlock()
	if !found {
		w.WriteHeader(http.StatusNotFound)
		answer(w, api.ErrorBody{Error: api.Errorf(api.CodeNotFound, "there is no %s", noun)})
		return
	}
	noun, _, _ = strings.Cut(noun, "?")
	noun, id, _ := strings.Cut(noun, "/")
	if id != "" {
		noun = strings.TrimSuffix(noun, "s")
	}
	answer(w, map[string]any{"schema_version": api.SchemaVersion, noun: document})
}

func answer(w http.ResponseWriter, document any) {
	_ = json.NewEncoder(w).Encode(document) // a reader that is gone cannot be told
}

// events answers as the registry does: at most 1000 events after since, or all and those
// to come.
func (s *side) events(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.ParseInt(r.URL.Query().Get("since"), 10, 64)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if r.URL.Query().Get("follow") == "" {
		events, _ := s.after(since)
		answer(w, map[string]any{"schema_version": api.SchemaVersion, "events": events})
		return
	}
	for {
		_ = http.NewResponseController(w).Flush()
		events, more := s.after(since)
		for _, e := range events {
			answer(w, e)
			since = e.Seq
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *side) after(since int64) ([]api.Event, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := []api.Event{}
	for _, e := range s.trail {
		if e.Seq > since && len(events) < 1000 {
			events = append(events, e)
		}
	}
	return events, s.more
}

// serve runs 'volferryctl web' for the side and returns the link that it prints, and how to
// end it.
func serve(t *testing.T, s *side) (link string, end func()) {
	t.Helper()
	program := filepath.Join("..", "..", "bin", "volferryctl")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--socket", s.socket, "web", "--listen", "127.0.0.1:0", "--quiet")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	link, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(fmt.Errorf("read the link: %w", err))
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("volferryctl web: %v", err)
		}
	}
	t.Cleanup(end)
	return strings.TrimSpace(link), end
}
