// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/protocol"
)

type listening struct {
	transport
	c *connection
}

const (
	defaultPort = "7643"
	// connectTimeout limits a connection attempt, handshake included.
	connectTimeout = 10 * time.Second
	// minConnectTimeout is the least timeout for each of several URLs.
	minConnectTimeout = 2 * time.Second
	// maxIdleConnections is for one server: a daemon with many guests makes many requests at once.
	maxIdleConnections = 1024
)

// keepAlive detects within half a minute that the server's machine is gone. A client that waits
// for an answer sends nothing, so no write could fail.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

type tlsFiles struct {
	ca, cert, key string
}

type transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

type connection struct {
	transport   transport
	base        *url.URL
	target      string
	unavailable api.Code
	tlsFiles    *tlsFiles
	credentials *mtls.Credentials // nil over a Unix socket
	as          func() (hostID string, epoch int64)
	caller      func(key string) string
	dial        func(ctx context.Context, address string) (net.Conn, error) // nil for the network of this process
	// peer is the server's last announcement, nil before its first answer.
	peer atomic.Pointer[protocol.Announcement]
}

func (c *connection) connectTo(target string) error {
	if !strings.HasPrefix(target, "https://") {
		path, err := socketPath(target)
		if err != nil {
			return err
		}
		// The host is for the Host header; the dialer has the path.
		c.target, c.base = path, &url.URL{Scheme: "http", Host: "volferry"}
		c.transport = listening{c.speakingAs(newSocketTransport(path)), c}
		return nil
	}
	base, err := serverURL(target)
	if err != nil {
		return err
	}
	if c.tlsFiles == nil || c.tlsFiles.ca == "" || c.tlsFiles.cert == "" || c.tlsFiles.key == "" {
		return api.Errorf(api.CodeInvalidArgument, "cannot connect to %s without the files of tls_ca, tls_cert and tls_key; volferry-registry issue-cert makes them", target)
	}
	// No log: the error of a refused request explains the fault of the files.
	credentials, err := mtls.NewCredentials(c.tlsFiles.ca, c.tlsFiles.cert, c.tlsFiles.key, slog.New(slog.DiscardHandler))
	if err != nil {
		return api.Errorf(api.CodeInvalidArgument, "cannot connect to %s: %v", target, err)
	}
	c.target, c.base, c.credentials = base.String(), base, credentials
	c.transport = listening{c.speakingAs(&tlsTransport{credentials: credentials, serverName: base.Hostname(), connect: c.dial, timeout: connectTimeout}), c}
	return nil
}

func socketPath(target string) (string, error) {
	path, isURL := strings.CutPrefix(target, "unix://")
	if !isURL && strings.Contains(target, "://") {
		return "", api.Errorf(api.CodeInvalidArgument, "cannot connect to %s: give unix:///path, or https://host for a registry on another machine", target)
	}
	if !strings.HasPrefix(path, "/") {
		return "", api.Errorf(api.CodeInvalidArgument, "cannot connect to %q: it is no absolute path of a socket; give unix:///path", target)
	}
	return path, nil
}

func serverURL(target string) (*url.URL, error) {
	u, err := url.Parse(target)
	if err != nil || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, api.Errorf(api.CodeInvalidArgument, "cannot connect to %q: give https://host or https://host:port and nothing more", target)
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, api.Errorf(api.CodeInvalidArgument, "cannot connect to %q: %s is no port", target, port)
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(u.Hostname(), port)}, nil
}

// Addresses returns the host:port addresses of comma-separated https:// targets.
func Addresses(targets string) ([]string, error) {
	var out []string
	for _, target := range strings.Split(targets, ",") {
		base, err := serverURL(strings.TrimSpace(target))
		if err != nil {
			return nil, err
		}
		out = append(out, base.Host)
	}
	return out, nil
}

func newTransport() *http.Transport {
	return &http.Transport{
		// The servers keep idle connections for longer.
		IdleConnTimeout:     time.Minute,
		MaxIdleConnsPerHost: maxIdleConnections,
		DisableCompression:  true,
	}
}

func newSocketTransport(path string) *http.Transport {
	t := newTransport()
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return t
}

// tlsTransport connects with the current credentials. When they change, it closes connections with
// older credentials as soon as they are idle.
type tlsTransport struct {
	credentials *mtls.Credentials
	serverName  string
	connect     func(ctx context.Context, address string) (net.Conn, error) // nil for the network of this process
	// timeout limits a connection attempt, check included. check may refuse a connection after the
	// handshake; nil accepts all.
	timeout time.Duration
	check   func(context.Context, net.Conn) error

	mu      sync.Mutex
	version any
	current *http.Transport
}

func (t *tlsTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.now().RoundTrip(r)
}

func (t *tlsTransport) CloseIdleConnections() { t.now().CloseIdleConnections() }

func (t *tlsTransport) now() *http.Transport {
	version := t.credentials.Version()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil && t.version == version {
		return t.current
	}
	if t.current != nil {
		// Busy connections are closed when they are idle.
		t.current.CloseIdleConnections()
	}
	t.version, t.current = version, newTransport()
	t.current.DialTLSContext = t.dial
	return t.current
}

func (t *tlsTransport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	connect := t.connect
	if connect == nil {
		dialer := net.Dialer{KeepAliveConfig: keepAlive}
		connect = func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		}
	}
	raw, err := connect(ctx, address)
	if err != nil {
		return nil, err //nolint:wrapcheck // transportError reads it
	}
	conn := tls.Client(raw, t.credentials.Config(t.serverName))
	err = conn.HandshakeContext(ctx)
	if err == nil && t.check != nil {
		err = t.check(ctx, conn)
	}
	if err != nil {
		_ = raw.Close()
		return nil, &handshakeError{err: err}
	}
	return conn, nil
}

// handshakeError is the error of a connection that was not established: nothing was sent.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return fmt.Sprintf("handshake: %v", e.err) }
func (e *handshakeError) Unwrap() error { return e.err }

type speaking struct {
	transport
	as     func() (hostID string, epoch int64)
	caller func(key string) string // nil adds none
}

func (c *connection) speakingAs(t transport) transport {
	if c.as == nil {
		return t
	}
	return speaking{transport: t, as: c.as, caller: c.caller}
}

func (s speaking) RoundTrip(r *http.Request) (*http.Response, error) {
	// A RoundTripper must not change the request.
	r = r.Clone(r.Context())
	r.Header.Del(api.HostHeader)
	r.Header.Del(api.EpochHeader)
	if id, epoch := s.as(); id != "" {
		r.Header.Set(api.HostHeader, id)
		r.Header.Set(api.EpochHeader, strconv.FormatInt(epoch, 10))
	}
	if key := r.Header.Get(api.IdempotencyKeyHeader); s.caller != nil && key != "" {
		if who := s.caller(key); who != "" {
			r.Header.Set(api.CallerHeader, who)
		}
	}
	return s.transport.RoundTrip(r)
}

func (l listening) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.transport.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // transportError reads it
	}
	peer := protocol.AnnouncedIn(resp.Header)
	l.c.peer.Store(&peer)
	return resp, nil
}
