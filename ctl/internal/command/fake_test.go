// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
)

// fake is a daemon that answers from a list of routes. Each route is a line "METHOD PATH STATUS
// BODY", or "METHOD PATH" with the lines of a stream under it, indented: events, and the words
// break (break the connection, once), crash (end the whole server, once) and wait (send nothing
// more, once). Several routes of one method and path are used in order; the last one stays. The
// line "announces" makes it announce itself as a program of this version.
type fake struct {
	socket    string
	announces bool

	mu     sync.Mutex
	routes map[string][]*route
	log    []string
	logged chan struct{}
	server *httptest.Server
}

type route struct {
	status int
	body   string
	lines  []string
}

func newFake(socket string) *fake {
	return &fake{socket: socket, routes: map[string][]*route{}, logged: make(chan struct{})}
}

func (f *fake) script(text string) error {
	var last *route
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if stream, ok := strings.CutPrefix(line, "\t"); ok && last != nil {
			last.lines = append(last.lines, stream)
			continue
		}
		if line == "announces" {
			f.announces = true
			continue
		}
		parts := strings.SplitN(line, " ", 4)
		if len(parts) < 2 || strings.HasPrefix(line, "#") {
			continue
		}
		last = &route{status: http.StatusOK}
		if len(parts) == 4 {
			status, err := strconv.Atoi(parts[2])
			if err != nil {
				return fmt.Errorf("route %q: %w", line, err)
			}
			last.status, last.body = status, parts[3]
		}
		key := parts[0] + " " + parts[1]
		f.routes[key] = append(f.routes[key], last)
	}
	return nil
}

func (f *fake) start() error {
	// A crash leaves the socket in place.
	if err := os.Remove(f.socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", f.socket)
	if err != nil {
		return err
	}
	server := httptest.NewUnstartedServer(f)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.server = server
	return nil
}

// stop closes the socket and breaks every connection.
func (f *fake) stop() {
	f.mu.Lock()
	server := f.server
	f.server = nil
	f.mu.Unlock()
	if server != nil {
		_ = server.Listener.Close()
		server.CloseClientConnections()
		server.Close()
	}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	key := "no-key"
	if k := r.Header.Get(api.IdempotencyKeyHeader); k != "" {
		key = "bad-key"
		if uuid.Validate(k) == nil {
			key = "key"
		}
	}
	if f.announces {
		protocol.Announce(w.Header())
	}
	found := f.take(fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), key, body), r)
	switch {
	case found == nil:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error":{"code":"not_found","message":"there is no %s"}}`, r.URL.Path)
	case found.body != "":
		w.WriteHeader(found.status)
		_, _ = w.Write(withVersion([]byte(found.body)))
	case found.status == http.StatusOK && len(found.lines) == 0:
		panic(http.ErrAbortHandler)
	default:
		f.stream(w, r, found)
	}
}

// take logs a request and finds its route.
func (f *fake) take(line string, r *http.Request) *route {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, line)
	close(f.logged)
	f.logged = make(chan struct{})
	key := r.Method + " " + r.URL.RequestURI()
	if len(f.routes[key]) == 0 {
		key = r.Method + " " + r.URL.Path
	}
	routes := f.routes[key]
	if len(routes) == 0 {
		return nil
	}
	if len(routes) > 1 {
		f.routes[key] = routes[1:]
	}
	return routes[0]
}

func (f *fake) stream(w http.ResponseWriter, r *http.Request, found *route) {
	since, _ := strconv.ParseInt(r.URL.Query().Get("since"), 10, 64)
	for {
		line, ok := f.next(found, &since)
		if !ok {
			return
		}
		switch line {
		case "break":
			panic(http.ErrAbortHandler)
		case "crash":
			go f.stop()
			<-r.Context().Done()
			return
		case "wait":
			<-r.Context().Done()
			return
		}
		fmt.Fprintln(w, line)
		_ = http.NewResponseController(w).Flush()
	}
}

// next returns the next line of a stream after event since. Words are used once.
func (f *fake) next(found *route, since *int64) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, line := range found.lines {
		var e api.Event
		if json.Unmarshal([]byte(line), &e) != nil {
			found.lines = append(append([]string{}, found.lines[:i]...), found.lines[i+1:]...)
			return line, true
		}
		if e.Seq > *since {
			*since = e.Seq
			return line, true
		}
	}
	return "", false
}

// await returns once a request was logged that contains text.
func (f *fake) await(ctx context.Context, text string) error {
	for {
		f.mu.Lock()
		all, more := strings.Join(f.log, "\n"), f.logged
		f.mu.Unlock()
		if strings.Contains(all, text) {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("no request contains %q; there were:\n%s", text, all)
		}
	}
}

func (f *fake) sent() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.log, "\n") + "\n"
}

// withVersion puts the schema version into a document that is no error.
func withVersion(body []byte) []byte {
	if bytes.HasPrefix(body, []byte(`{"error"`)) {
		return body
	}
	return append([]byte(`{"schema_version":1,`), body[1:]...)
}

func TestFakeSkipsWhatTheReaderHasSeen(t *testing.T) {
	r := &route{lines: []string{`{"seq":1}`, "break", `{"seq":2}`}}
	f, since := newFake(""), int64(1)
	var got []string
	for {
		line, ok := f.next(r, &since)
		if !ok {
			break
		}
		got = append(got, line)
	}
	if s := strings.Join(got, " "); s != `break {"seq":2}` {
		t.Errorf("lines after event 1 = %s", s)
	}
}
