// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/mtls/mtlstest"
)

// authority is a TLS directory with a client of every kind.
type authority struct {
	dir     string
	ca      *mtls.CA
	clients map[string]*tls.Config
}

// newAuthority issues the certificates of all callers, once for all tests because keys take time.
func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), clients: map[string]*tls.Config{}}
	var err error
	if a.ca, err = mtls.CreateCA(a.dir, a.dir); err != nil {
		t.Fatal(err)
	}
	server := expect.Value(a.ca.IssueServer([]string{"127.0.0.1"}, mtls.Day))(t)
	expect.OK(t, server.Write(a.dir, "server"))
	a.add(t, "own host", expect.Value(a.ca.IssueHost(hostID, "a", mtls.Day))(t))
	a.add(t, "other host", expect.Value(a.ca.IssueHost(otherID, "b", mtls.Day))(t))
	for _, role := range []httpjson.Access{httpjson.Read, httpjson.Operate, httpjson.Fence} {
		a.add(t, "operator "+role.String(), expect.Value(a.ca.IssueOperator(role, "ann", mtls.Day))(t))
	}
	a.add(t, "revoked", expect.Value(a.ca.IssueHost(hostID, "a", mtls.Day))(t))
	a.add(t, "expired", expect.Value(mtlstest.At(a.ca, time.Now().Add(-2*mtls.Day)).IssueHost(hostID, "a", mtls.Day))(t))
	a.clients["no certificate"] = a.trusting(t)
	a.deny(t, "revoked")
	return a
}

// trusting returns a client that trusts the server and has no certificate.
func (a *authority) trusting(t *testing.T) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(expect.Value(os.ReadFile(filepath.Join(a.dir, mtls.CACertFile)))(t)) {
		t.Fatal("the authority's file has no certificate")
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
}

func (a *authority) add(t *testing.T, caller string, p mtls.Pair) {
	t.Helper()
	cfg := a.trusting(t)
	cfg.Certificates = []tls.Certificate{expect.Value(tls.X509KeyPair(p.Cert, p.Key))(t)}
	a.clients[caller] = cfg
}

func (a *authority) deny(t *testing.T, caller string) {
	t.Helper()
	cert := expect.Value(x509.ParseCertificate(a.clients[caller].Certificates[0].Certificate[0]))(t)
	if _, err := mtls.Deny(a.dir, mtls.SPKIOf(cert), caller); err != nil {
		t.Fatal(err)
	}
}

// caller is one way to reach a registry.
type caller struct {
	url    string
	client *http.Client
	epoch  string // in its header, as a daemon's; "" for none
}

// open serves the site over TLS and over two Unix sockets, for root and for another user, and
// returns a caller of every kind.
func (a *authority) open(t *testing.T, s *site) map[string]caller {
	t.Helper()
	gate := expect.Value(mtls.NewGate(a.dir, slog.New(slog.DiscardHandler)))(t)
	srv := httptest.NewUnstartedServer(gate.Handler(s.handler))
	srv.TLS = gate.Config()
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // of refused handshakes
	srv.StartTLS()
	t.Cleanup(srv.Close)
	callers := map[string]caller{}
	for name, cfg := range a.clients {
		transport := &http.Transport{TLSClientConfig: cfg.Clone()}
		t.Cleanup(transport.CloseIdleConnections)
		c := caller{url: srv.URL, client: &http.Client{Transport: transport}}
		if strings.HasSuffix(name, " host") {
			c.epoch = "1"
		}
		callers[name] = c
	}
	for name, uid := range map[string]uint32{"Unix root": 0, "Unix stranger": 4242} {
		callers[name] = openSocket(t, s, uid)
	}
	return callers
}

func openSocket(t *testing.T, s *site, uid uint32) caller {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	srv := httptest.NewUnstartedServer(s.handler)
	expect.OK(t, srv.Listener.Close())
	srv.Listener = expect.Value(new(net.ListenConfig).Listen(t.Context(), "unix", path))(t)
	srv.Config.BaseContext = func(net.Listener) context.Context {
		return httpjson.WithPeer(context.Background(), httpjson.Peer{UID: uid})
	}
	srv.Start()
	t.Cleanup(srv.Close)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return caller{url: "http://registry", client: &http.Client{Transport: transport}}
}

type answer struct {
	status int
	body   string
	code   api.Code // "" for a success
}

// ask sends a request. An error means that there was no answer. It reads only the beginning of a
// stream.
func (c caller) ask(t *testing.T, method, path, body string) (answer, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := expect.Value(http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body)))(t)
	if c.epoch != "" {
		r.Header.Set(api.EpochHeader, c.epoch)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode}
	if resp.Header.Get("Content-Type") == "application/x-ndjson" {
		return a, nil
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	a.body = string(b)
	if a.status > 299 {
		e := expect.Refusal(b)
		if e == nil {
			t.Fatalf("%s %s = %d %.200s, which is no error of the API", method, path, a.status, b)
		}
		a.code = e.Code
	}
	return a, nil
}
