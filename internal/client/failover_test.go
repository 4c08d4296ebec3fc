// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
)

// place is a process of a registry at one of the site's URLs.
type place struct {
	target string
	stop   func()

	mu   sync.Mutex
	seen []string
}

func (p *place) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// listen listens at address.
func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.WithoutCancel(t.Context()), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func targetOf(l net.Listener) string {
	return fmt.Sprintf("https://localhost:%d", l.Addr().(*net.TCPAddr).Port) //nolint:errcheck,forcetypeassert // it is
}

// place serves as this process of this registry. It does not record the requests that identify the
// registry.
func (s *site) place(l net.Listener, registry, process string, h http.HandlerFunc) *place {
	s.t.Helper()
	p := &place{target: targetOf(l)}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn)}
	srv.Handler = s.gate.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.RegistryHeader, registry+" "+process)
		if r.URL.Path != "/v1/version" {
			p.mu.Lock()
			p.seen = append(p.seen, r.Method+" "+r.URL.Path)
			p.mu.Unlock()
		}
		h(w, r)
	}))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(tls.NewListener(l, s.gate.Config())) }()
	p.stop = sync.OnceFunc(func() {
		if err := errors.Join(srv.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(p.stop)
	return p
}

// both returns a client of places, in this order.
func (s *site) both(settings []client.Setting, targets ...string) *client.Registry {
	s.t.Helper()
	r := must(client.NewRegistry(strings.Join(targets, ","), append([]client.Setting{client.TLS(s.files(s.host()))}, settings...)...))
	s.t.Cleanup(r.Close)
	return r
}

// nobody returns a URL without a server.
func nobody(t *testing.T) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	must(0, l.Close())
	return targetOf(l)
}

func hello(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte(`{"schema_version":1,"host":{}}`))
}

func newPlaces(t *testing.T) *site {
	t.Helper()
	return newSite(t, http.HandlerFunc(whoami), localhost)
}

func TestTheNextURLIsTriedWhereNobodyListensAndIsKept(t *testing.T) {
	s := newPlaces(t)
	l := listen(t, "127.0.0.1:0")
	first := targetOf(l)
	must(0, l.Close())
	b := s.place(listen(t, "127.0.0.1:0"), "r", "2", hello)
	r := s.both(nil, first, b.target)
	for range 2 {
		if err := r.Do(t.Context(), "POST", "/x", map[string]int{"n": 1}, nil); err != nil {
			t.Fatal(err)
		}
	}
	// A URL that answers again does not replace the URL in use.
	a := s.place(listen(t, strings.TrimPrefix(first, "https://")), "r", "1", hello)
	if err := r.Do(t.Context(), "GET", "/y", nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := b.requests(); !slices.Equal(got, []string{"POST /x", "POST /x", "GET /y"}) || len(a.requests()) > 0 {
		t.Errorf("the second was asked %q, the first %q", got, a.requests())
	}
	ends := r.Endpoints()
	if len(ends) != 2 || ends[0].InUse || ends[0].Err == nil || !ends[1].InUse || ends[1].Err != nil {
		t.Errorf("endpoints = %+v", ends)
	}
	// Wrapped around: the first is tried when the second is gone.
	b.stop()
	if err := r.Do(t.Context(), "GET", "/z", nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := a.requests(); !slices.Equal(got, []string{"GET /z"}) {
		t.Errorf("the first was asked %q", got)
	}
}

func TestARegistryThatTakesConnectionsAndHangsIsLeft(t *testing.T) {
	s := newPlaces(t)
	hangs := listen(t, "127.0.0.1:0") // the kernel accepts connections
	t.Cleanup(func() { _ = hangs.Close() })
	b := s.place(listen(t, "127.0.0.1:0"), "r", "2", hello)
	r := s.both([]client.Setting{client.Timeout(time.Minute)}, targetOf(hangs), b.target)
	if err := r.Do(t.Context(), "GET", "/x", nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := b.requests(); len(got) != 1 {
		t.Errorf("the second was asked %q", got)
	}
}

func TestARequestWithoutAnAnswerIsNotSentToTheNextURL(t *testing.T) {
	s := newPlaces(t)
	release := make(chan struct{})
	a := s.place(listen(t, "127.0.0.1:0"), "r", "1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/dies" {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == "/hangs" {
			<-release
		}
		hello(w, r)
	})
	t.Cleanup(func() { close(release) })
	b := s.place(listen(t, "127.0.0.1:0"), "r", "2", hello)
	r := s.both(nil, a.target, b.target)
	for _, path := range []string{"/dies", "/hangs"} {
		err := r.Do(t.Context(), "POST", path, map[string]int{"n": 1}, nil, client.IdempotencyKey("op"), client.Within(2*time.Second))
		if api.CodeOf(err) != api.CodeRegistryUnavailable || api.AsError(err).Details["maybe_done"] != true {
			t.Errorf("%s: %v, want registry_unavailable with maybe_done", path, err)
		}
	}
	if got := b.requests(); len(got) > 0 {
		t.Errorf("the second was asked %q", got)
	}
}

func TestWhenAllAreAwayOneMessageNamesThem(t *testing.T) {
	s := newPlaces(t)
	a, b := nobody(t), nobody(t)
	_, err := s.both(nil, a, b).PostEvent(t.Context(), "op", api.EventPost{})
	if api.CodeOf(err) != api.CodeRegistryUnavailable || api.AsError(err).Details["maybe_done"] != nil ||
		!strings.Contains(err.Error(), "no registry can be reached: ") || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) {
		t.Errorf("error = %v", err)
	}
}

func TestAnotherRegistryIsRefusedBeforeItIsAsked(t *testing.T) {
	s := newPlaces(t)
	a := s.place(listen(t, "127.0.0.1:0"), "r", "1", hello)
	other := s.place(listen(t, "127.0.0.1:0"), "other", "2", hello)
	silent := s.place(listen(t, "127.0.0.1:0"), "r", "3", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Del(api.RegistryHeader)
		hello(w, r)
	})
	for name, r := range map[string]*client.Registry{
		"by what the host was told":  s.both([]client.Setting{client.OfRegistry(func() string { return "r" })}, nobody(t), other.target),
		"one that does not say":      s.both([]client.Setting{client.OfRegistry(func() string { return "r" })}, nobody(t), silent.target),
		"by what answered before it": s.both(nil, a.target, other.target),
	} {
		if name == "by what answered before it" {
			must(0, r.Do(t.Context(), "GET", "/x", nil, nil))
			a.stop()
		}
		err := r.Do(t.Context(), "GET", "/x", nil, nil)
		if api.CodeOf(err) != api.CodeRegistryUnavailable || !strings.Contains(err.Error(), "another registry") && !strings.Contains(err.Error(), "which registry it is") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := slices.Concat(other.requests(), silent.requests()); len(got) > 0 {
		t.Errorf("they were asked %q", got)
	}
}

func TestACertificateHasToHaveTheNameOfItsURL(t *testing.T) {
	s := newPlaces(t)
	b := s.place(listen(t, "127.0.0.1:0"), "r", "2", hello)
	r := s.both(nil, nobody(t), strings.Replace(b.target, "localhost", "127.0.0.1", 1))
	if err := r.Do(t.Context(), "GET", "/x", nil, nil); err == nil || !strings.Contains(err.Error(), "certificate is of another name") && !strings.Contains(err.Error(), "IP SANs") {
		t.Errorf("error = %v", err)
	}
}

// A process without the host's newest mark could mistake a resource for free.
func TestAHostChangesNothingAtAnotherProcessBeforeItHasReportedThere(t *testing.T) {
	s := newPlaces(t)
	l := listen(t, "127.0.0.1:0")
	a := s.place(l, "r", "1", hello)
	b := s.place(listen(t, "127.0.0.1:0"), "r", "2", hello)
	r := s.both([]client.Setting{client.As(func() (string, int64) { return hostID, 1 })}, a.target, b.target)
	change := func() error { _, err := r.PostEvent(t.Context(), "op", api.EventPost{}); return err }
	tasks := func() error { _, err := r.Tasks(t.Context(), hostID, "s", 0); return err }
	report := func() { t.Helper(); must(r.Report(t.Context(), api.HostReport{ID: hostID})) }
	refused := func(when string) {
		t.Helper()
		for _, err := range []error{change(), tasks()} {
			if api.CodeOf(err) != api.CodeRegistryUnavailable || api.AsError(err).Details[api.DetailReportFirst] != true {
				t.Errorf("%s: %v, want report_first", when, err)
			}
		}
	}
	refused("at the start")
	report()
	must(0, change())
	a.stop()
	must(0, r.Do(t.Context(), "GET", "/x", nil, nil))
	refused("at the second")
	report()
	must(0, change())
	b.stop()
	again := s.place(listen(t, l.Addr().String()), "r", "3", hello)
	must(0, r.Do(t.Context(), "GET", "/x", nil, nil))
	refused("at the first, restarted")
	for _, p := range []*place{a, b} {
		if got := p.requests(); !slices.Contains(got, "POST /v1/events") {
			t.Errorf("asked %q", got)
		}
	}
	if got := again.requests(); !slices.Equal(got, []string{"GET /x"}) {
		t.Errorf("the restarted one was asked %q", got)
	}
}

func TestTwoProcessesThatAnswerAtOnceAreSeen(t *testing.T) {
	s := newPlaces(t)
	a := s.place(listen(t, "127.0.0.1:0"), "r", "1", hello)
	same := s.place(listen(t, "127.0.0.1:0"), "r", "1", hello)
	b := s.place(listen(t, "127.0.0.1:0"), "r", "2", hello)
	r := s.both(nil, a.target, same.target, b.target)
	must(0, r.Do(t.Context(), "GET", "/x", nil, nil))
	ends := r.Probe(t.Context())
	if len(ends) != 3 || ends[0].Err != nil || ends[1].Err != nil || !errors.Is(ends[2].Err, client.ErrTwoRegistries) {
		t.Errorf("endpoints = %+v", ends)
	}
	if len(s.registry(s.host()).Probe(t.Context())) > 0 {
		t.Error("one URL has endpoints")
	}
}

func TestListsThatAreRefused(t *testing.T) {
	s := newPlaces(t)
	for _, list := range []string{"https://a,unix:///s", "https://a,https://a:7643", "https://a,", "/s,https://a", "https://a,https://b:0"} {
		if _, err := client.New(list, client.TLS(s.files(s.host()))); api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("New(%q) error = %v, want invalid_argument", list, err)
		}
	}
}

func TestTheCommaInThePathOfASocketMakesNoList(t *testing.T) {
	for target, list := range map[string]bool{
		"https://a:7643": false, "https://a:7643,https://b:7643": true, "https://a:7643,": true,
		"/run/a,b.sock": false, "unix:///run/a,b.sock": false, "/run/a.sock,https://b:7643": true,
	} {
		if client.IsList(target) != list {
			t.Errorf("%s: a list %t, want %t", target, !list, list)
		}
	}
}
