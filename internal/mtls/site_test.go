// SPDX-License-Identifier: Apache-2.0

package mtls_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hostID = "10000000-0000-4000-8000-000000000001"

var quiet = slog.New(slog.DiscardHandler)

// site is an authority, a gate, and a server that uses the gate.
type site struct {
	t    *testing.T
	dir  string // the gate's
	ca   *mtls.CA
	gate *mtls.Gate
	addr string
	log  *lines
	// ended gets the callers of /forever when their requests end.
	ended chan string
	// ahead is how far the clock of the gate is ahead of the test's.
	ahead atomic.Int64
}

func (s *site) setAhead(d time.Duration) { s.ahead.Store(int64(d)) }

// lines is a log that can be read while it is written.
type lines struct {
	mu    sync.Mutex
	b     bytes.Buffer
	wrote *sync.Cond
}

func newLines() *lines {
	l := new(lines)
	l.wrote = sync.NewCond(&l.mu)
	return l
}

// await waits for a text in the log.
func (l *lines) await(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !strings.Contains(l.b.String(), text) {
		l.wrote.Wait()
	}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.wrote.Broadcast()
	return l.b.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

var routes = []httpjson.Route{
	{Method: "GET", Path: "/read", Access: httpjson.Read},
	{Method: "POST", Path: "/operate", Access: httpjson.Operate},
	{Method: "POST", Path: "/fence", Access: httpjson.Fence},
	{Method: "GET", Path: "/any", Access: httpjson.Read, Hosts: httpjson.HostAny},
	{Method: "POST", Path: "/own", Access: httpjson.Operate, Hosts: httpjson.HostOwn},
	{Method: "POST", Path: "/daemon", Access: httpjson.Local, Hosts: httpjson.HostOwn},
	{Method: "GET", Path: "/forever", Access: httpjson.Read, Hosts: httpjson.HostOwn},
}

// whoami answers with the caller; /forever waits for the end of the request.
func (s *site) whoami(w http.ResponseWriter, r *http.Request) error {
	id, _ := mtls.IdentityOf(r.Context())
	if r.URL.Path == "/forever" {
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
		<-r.Context().Done()
		s.ended <- id.Name
		return nil
	}
	return httpjson.Write(w, http.StatusOK, "who", id.String())
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: filepath.Join(t.TempDir(), "tls"), log: newLines(), ended: make(chan string, 10)}
	var err error
	if s.ca, err = mtls.CreateCA(s.dir, s.dir); err != nil {
		t.Fatal(err)
	}
	s.write(must(s.ca.IssueServer([]string{"localhost", "127.0.0.1"}, mtls.DefaultValidity)), s.dir, "server")
	if s.gate, err = mtls.NewGate(s.dir, slog.New(slog.NewTextHandler(s.log, nil))); err != nil {
		t.Fatal(err)
	}
	s.gate.Now = func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
	table := append([]httpjson.Route(nil), routes...)
	for i := range table {
		table[i].Handler = s.whoami
	}
	nobody := func(*http.Request, httpjson.Route) error { return errors.New("came by a socket") }
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	srv := &http.Server{
		Handler:           s.gate.Handler(httpjson.NewHandler(httpjson.Config{Routes: table, Authorize: mtls.Authorizer(nobody), Log: quiet})),
		ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.NewTextHandler(s.log, nil), slog.LevelWarn),
	}
	done := make(chan error, 2)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- srv.Serve(tls.NewListener(l, s.gate.Config())) }()
	go func() { done <- s.gate.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for _, err := range []error{srv.Close(), <-done, <-done} {
			if err != nil && !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}
	})
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (s *site) write(p mtls.Pair, dir, name string) {
	s.t.Helper()
	if err := p.Replace(dir, name); err != nil {
		s.t.Fatal(err)
	}
}

// caller has the files of one certificate.
type caller struct {
	s    *site
	dir  string
	http *http.Client
}

func (s *site) caller(p mtls.Pair) *caller {
	s.t.Helper()
	c := &caller{s: s, dir: s.t.TempDir()}
	s.write(p, c.dir, "c")
	c.http = c.with(c.config())
	return c
}

// config returns the TLS configuration of a client with the caller's certificate.
func (c *caller) config() *tls.Config {
	return must(mtls.NewCredentials(filepath.Join(c.dir, "ca.crt"), filepath.Join(c.dir, "c.crt"), filepath.Join(c.dir, "c.key"), slog.New(slog.DiscardHandler))).Config("localhost")
}

func (c *caller) with(config *tls.Config) *http.Client {
	t := &http.Transport{TLSClientConfig: config}
	c.s.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// ask returns the code of the answer, "ok", or the error of the connection.
func (c *caller) ask(method, path string, header ...string) (who string, err error) {
	r, err := http.NewRequestWithContext(c.s.t.Context(), method, "https://"+c.s.addr+path, http.NoBody)
	if err != nil {
		return "", err
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode == http.StatusOK {
		return string(body), nil
	}
	var e api.ErrorBody
	if err := json.Unmarshal(body, &e); err != nil {
		return "", err
	}
	return "", e.Error
}

func (s *site) host() mtls.Pair { return must(s.ca.IssueHost(hostID, "alpha", mtls.Day)) }

func (s *site) operator(role httpjson.Access) mtls.Pair {
	return must(s.ca.IssueOperator(role, "ann", mtls.Day))
}

func spkiOf(p mtls.Pair) string {
	block, _ := pem.Decode(p.Cert)
	return mtls.SPKIOf(must(x509.ParseCertificate(block.Bytes)))
}

func (s *site) deny(p mtls.Pair) {
	s.t.Helper()
	added, err := mtls.Deny(s.dir, spkiOf(p), "a test")
	if err != nil || !added {
		s.t.Fatalf("deny: %t, %v", added, err)
	}
}
