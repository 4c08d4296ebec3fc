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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/mtls/mtlstest"
)

const hostID = "10000000-0000-4000-8000-000000000001"

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// site is an authority and a server, like a registry.
type site struct {
	t      *testing.T
	dir    string
	ca     *mtls.CA
	target string
	gate   *mtls.Gate

	mu     sync.Mutex
	opened int
	closed chan struct{} // one for each ended connection
}

// newSite serves h with a server certificate from issue.
func newSite(t *testing.T, h http.Handler, issue func(*mtls.CA) (mtls.Pair, error)) *site {
	t.Helper()
	s := &site{t: t, dir: filepath.Join(t.TempDir(), "tls"), closed: make(chan struct{}, 100)}
	s.ca = must(mtls.CreateCA(s.dir, s.dir))
	must(0, must(issue(s.ca)).Write(s.dir, "server"))
	s.gate = must(mtls.NewGate(s.dir, slog.New(slog.DiscardHandler)))
	l, err := new(net.ListenConfig).Listen(context.WithoutCancel(t.Context()), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.target = fmt.Sprintf("https://localhost:%d", l.Addr().(*net.TCPAddr).Port) //nolint:errcheck,forcetypeassert // it is
	srv := &http.Server{
		Handler: s.gate.Handler(h), ReadHeaderTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn), ConnState: s.count,
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(tls.NewListener(l, s.gate.Config())) }()
	t.Cleanup(func() {
		if err := errors.Join(srv.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

func (s *site) count(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		s.mu.Lock()
		s.opened++
		s.mu.Unlock()
	}
	if state == http.StateClosed {
		s.closed <- struct{}{}
	}
}

func (s *site) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// files returns the files of a host of the site.
func (s *site) files(p mtls.Pair) (ca, cert, key string) {
	s.t.Helper()
	dir := s.t.TempDir()
	must(0, p.Replace(dir, "host"))
	return filepath.Join(dir, "ca.crt"), filepath.Join(dir, "host.crt"), filepath.Join(dir, "host.key")
}

func (s *site) registry(p mtls.Pair, settings ...client.Setting) *client.Registry {
	s.t.Helper()
	r, err := client.NewRegistry(s.target, append([]client.Setting{client.TLS(s.files(p))}, settings...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(r.Close)
	return r
}

func (s *site) host() mtls.Pair { return must(s.ca.IssueHost(hostID, "alpha", mtls.Day)) }

func localhost(ca *mtls.CA) (mtls.Pair, error) {
	return ca.IssueServer([]string{"localhost"}, mtls.Day)
}

// whoami answers a status with the caller in it.
func whoami(w http.ResponseWriter, r *http.Request) {
	id, _ := mtls.IdentityOf(r.Context())
	_ = httpjson.Write(w, http.StatusOK, "status", api.Status{Program: id.SPKI, Host: id.Name})
}

func TestRegistryIsReachedOverTLS(t *testing.T) {
	s := newSite(t, http.HandlerFunc(whoami), localhost)
	r := s.registry(s.host())
	for range 3 {
		if got, err := r.Status(t.Context()); err != nil || got.Host != "alpha" {
			t.Errorf("status = %+v, %v", got, err)
		}
	}
	if r.Target() != s.target || s.connections() != 1 {
		t.Errorf("%d connections to %s", s.connections(), r.Target())
	}
	if id, err := r.Credentials().Identity(); err != nil || id.ID != hostID {
		t.Errorf("identity = %+v, %v", id, err)
	}
}

func TestWhoeverMakesTheConnectionTheServerIsCheckedByTheClient(t *testing.T) {
	s, other := newSite(t, http.HandlerFunc(whoami), localhost), newSite(t, http.HandlerFunc(whoami), localhost)
	dials := 0
	to := func(target string) client.Setting {
		return client.DialedBy(func(ctx context.Context, _ string) (net.Conn, error) {
			dials++
			return new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(target, "https://"))
		})
	}
	ca, cert, key := s.files(s.host())
	r := must(client.NewRegistry(s.target, client.TLS(ca, cert, key), to(s.target)))
	if got, err := r.Status(t.Context()); err != nil || got.Host != "alpha" || dials != 1 {
		t.Errorf("status = %+v, %v, by %d connections", got, err, dials)
	}
	r = must(client.NewRegistry(s.target, client.TLS(ca, cert, key), to(other.target)))
	if _, err := r.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "not of the authority") {
		t.Errorf("another server is taken for the registry: %v", err)
	}
}

func TestPortIsTheRegistrysUnlessGiven(t *testing.T) {
	ca := must(mtls.CreateCA(t.TempDir(), t.TempDir()))
	dir := t.TempDir()
	must(0, must(ca.IssueHost(hostID, "alpha", mtls.Day)).Write(dir, "host"))
	files := client.TLS(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "host.crt"), filepath.Join(dir, "host.key"))
	for target, want := range map[string]string{
		"https://reg.example": "https://reg.example:7643", "https://reg.example/": "https://reg.example:7643",
		"https://reg.example:1": "https://reg.example:1", "https://[::1]": "https://[::1]:7643",
	} {
		if c, err := client.New(target, files); err != nil || c.Target() != want {
			t.Errorf("New(%s) = %v, %v; want %s", target, c, err, want)
		}
	}
	for name, setting := range map[string]client.Setting{
		"no files":     client.TLS("", "", ""),
		"missing file": client.TLS(filepath.Join(dir, "none"), filepath.Join(dir, "host.crt"), filepath.Join(dir, "host.key")),
		"wrong key":    client.TLS(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "host.crt"), filepath.Join(dir, "host.crt")),
		"no authority": client.TLS(filepath.Join(dir, "host.crt"), filepath.Join(dir, "host.crt"), filepath.Join(dir, "host.key")),
	} {
		if _, err := client.New("https://reg.example", setting); api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("%s: %v, want invalid_argument", name, err)
		}
	}
}

func TestServerThatIsNotTrustedOrDoesNotTrustUsIsUnavailableAndSaysWhy(t *testing.T) {
	good := newSite(t, http.HandlerFunc(whoami), localhost)
	other := newSite(t, http.HandlerFunc(whoami), localhost)
	named := newSite(t, http.HandlerFunc(whoami), func(ca *mtls.CA) (mtls.Pair, error) { return ca.IssueServer([]string{"reg.example"}, mtls.Day) })
	expired := newSite(t, http.HandlerFunc(whoami), func(ca *mtls.CA) (mtls.Pair, error) {
		return mtlstest.At(ca, time.Now().Add(-2*mtls.Day)).IssueServer([]string{"localhost"}, mtls.Day)
	})
	denied := good.host()
	ca, cert, key := good.files(denied)
	if added, err := mtls.Deny(good.dir, must(mtls.IdentityOfFile(cert)).SPKI, "a test"); err != nil || !added {
		t.Fatal(added, err)
	}
	otherCA, _, _ := other.files(other.host())
	_, otherCert, otherKey := other.files(other.host())
	oldCA, oldCert, oldKey := good.files(must(mtlstest.At(good.ca, time.Now().Add(-2*mtls.Day)).IssueHost(hostID, "alpha", mtls.Day)))
	namedCA, namedCert, namedKey := named.files(named.host())
	expiredCA, expiredCert, expiredKey := expired.files(expired.host())
	for name, tc := range map[string]struct {
		target        string
		ca, cert, key string
		want          []string
	}{
		"server of another authority": {good.target, otherCA, cert, key, []string{"not of the authority in " + otherCA}},
		"server of another name":      {named.target, namedCA, namedCert, namedKey, []string{"reg.example", "issue-cert server localhost"}},
		"server expired":              {expired.target, expiredCA, expiredCert, expiredKey, []string{"its certificate is good from", "issue-cert server"}},
		"we are of another authority": {good.target, ca, otherCert, otherKey, []string{"refused us", "unknown certificate authority", "log of the registry"}},
		"we are expired":              {good.target, oldCA, oldCert, oldKey, []string{"refused us", "expired certificate", oldCert + " is good until"}},
		"we are denied":               {good.target, ca, cert, key, []string{"refused us", cert + " is good until", "revoked"}},
		"no TLS":                      {"https://" + plainServer(t), ca, cert, key, []string{"does not speak TLS"}},
		"nobody there":                {"https://127.0.0.1:1", ca, cert, key, []string{"nobody listens there"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := client.NewRegistry(tc.target, client.TLS(tc.ca, tc.cert, tc.key))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Close)
			_, err = r.PostEvent(t.Context(), "op-1", api.EventPost{})
			if api.CodeOf(err) != api.CodeRegistryUnavailable || api.AsError(err).Details["maybe_done"] != nil {
				t.Errorf("error = %#v, want registry_unavailable, and certainly not done", err)
			}
			var distrust any
			switch who, _, _ := strings.Cut(name, " "); who {
			case "server":
				distrust = api.DistrustsServer
			case "we":
				distrust = api.DistrustsCaller
			}
			if got := api.AsError(err).Details[api.DetailDistrust]; got != distrust {
				t.Errorf("the detail is %v, want %v", got, distrust)
			}
			transport, base := r.Transport()
			resp, proxied := transport.RoundTrip(must(http.NewRequestWithContext(t.Context(), "GET", base.String(), http.NoBody)))
			if proxied == nil {
				t.Fatal(resp.Body.Close())
			}
			for _, text := range tc.want {
				if !strings.Contains(err.Error(), text) || !strings.Contains(proxied.Error(), text) {
					t.Errorf("error = %v, by the transport alone %v, want %q in it", err, proxied, text)
				}
			}
		})
	}
}

// plainServer serves plain HTTP on a port and returns it.
func plainServer(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.WithoutCancel(t.Context()), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: answering(200, ""), ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(srv.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestRenewedCertificateIsShownWithTheNextRequest(t *testing.T) {
	s := newSite(t, http.HandlerFunc(whoami), localhost)
	ca, cert, key := s.files(s.host())
	r, err := client.NewRegistry(s.target, client.TLS(ca, cert, key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	first := must(r.Status(t.Context())).Program
	must(0, s.host().Replace(filepath.Dir(cert), "host"))
	second := must(r.Status(t.Context())).Program
	if want := must(mtls.IdentityOfFile(cert)).SPKI; first == second || second != want {
		t.Errorf("the server saw %s and then %s, want %s", first, second, want)
	}
	// The connection with the old certificate is closed.
	<-s.closed
	if s.connections() != 2 {
		t.Errorf("%d connections were made", s.connections())
	}

	// In the middle of a renewal the files do not match.
	must(0, os.WriteFile(key, s.host().Key, 0o600))
	if got := must(r.Status(t.Context())).Program; got != second {
		t.Errorf("with files that do not belong together the server saw %s", got)
	}
	if err := r.Credentials().Trouble(); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("trouble = %v", err)
	}
}

// A long request on a connection with the old certificate continues, and afterwards the connection
// is not used again.
func TestRenewalLetsRunningRequestsEnd(t *testing.T) {
	release, started := make(chan struct{}), make(chan struct{})
	s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/version" {
			close(started)
			<-release
		}
		whoami(w, r)
	}), localhost)
	ca, cert, key := s.files(s.host())
	r, err := client.NewRegistry(s.target, client.TLS(ca, cert, key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	long := make(chan error, 1)
	go func() { long <- r.Do(context.WithoutCancel(t.Context()), "GET", "/v1/version", nil, nil) }()
	<-started
	must(0, s.host().Replace(filepath.Dir(cert), "host"))
	must(r.Status(t.Context()))
	close(release)
	if err := <-long; err != nil {
		t.Errorf("the long request: %v", err)
	}
	<-s.closed // without another request
}

func TestHostAndEpochGoWithEveryRequest(t *testing.T) {
	var got []string
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get(api.HostHeader)+" "+r.Header.Get(api.EpochHeader))
		answering(200, `{"schema_version":1,"status":{}}`).ServeHTTP(w, r)
	}))
	id, epoch := "", int64(0)
	c := newClient(t, path, client.As(func() (string, int64) { return id, epoch }))
	ask := func() { must(0, c.Do(t.Context(), "GET", "/v1/status", nil, nil)) }
	ask()
	id, epoch = hostID, 7
	ask()
	epoch = 8
	transport, base := c.Transport()
	r := must(http.NewRequestWithContext(t.Context(), "GET", base.String()+"/v1/status", http.NoBody))
	r.Header.Set(api.HostHeader, "somebody else")
	resp := must(transport.RoundTrip(r))
	must(0, resp.Body.Close())
	if want := " |" + hostID + " 7|" + hostID + " 8"; strings.Join(got, "|") != want {
		t.Errorf("headers = %q, want %q", strings.Join(got, "|"), want)
	}
	if r.Header.Get(api.HostHeader) != "somebody else" {
		t.Error("the request of the caller was changed")
	}
}

func TestPermissionThatTheServerDeniesIsNotUnavailable(t *testing.T) {
	s := newSite(t, http.HandlerFunc(whoami), localhost)
	ca, cert, key := s.files(s.host())
	r := must(client.NewRegistry(s.target, client.TLS(ca, cert, key)))
	t.Cleanup(r.Close)
	must(r.Status(t.Context()))
	must(mtls.Deny(s.dir, must(mtls.IdentityOfFile(cert)).SPKI, "a test"))
	if _, err := r.Status(t.Context()); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("on the connection that is there: %v", err)
	}
	if _, err := r.Status(t.Context()); api.CodeOf(err) != api.CodeRegistryUnavailable {
		t.Errorf("on a new one: %v", err)
	}
}
