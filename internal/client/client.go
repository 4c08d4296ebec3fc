// SPDX-License-Identifier: Apache-2.0

// Package client sends HTTP requests to volferryd and volferry-registry.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
)

const maxAnswerBytes = 64 << 20

// Client sends requests to one daemon or registry. It is safe for concurrent use.
type Client struct {
	connection
	http    *http.Client
	timeout time.Duration
	clock   clock
	// known and failover are for several URLs; failover is nil for a single URL.
	known    func() string
	failover *failover
}

// Setting configures a Client.
type Setting func(*Client)

// UnavailableAs sets the error code for a server that cannot be reached. The default is
// CodeHypervisorUnavailable.
func UnavailableAs(code api.Code) Setting {
	return func(c *Client) { c.unavailable = code }
}

// Timeout limits each Do. A server that exceeds it counts as unreachable. Streams have no limit.
func Timeout(d time.Duration) Setting {
	return func(c *Client) { c.timeout = d }
}

// TLS sets the PEM files for an https:// target: the authority of the server's certificate, and
// the client's own certificate and key. They are read again when they change.
func TLS(caFile, certFile, keyFile string) Setting {
	return func(c *Client) { c.tlsFiles = &tlsFiles{ca: caFile, cert: certFile, key: keyFile} }
}

// As adds to every request the host that makes it, and the present epoch of that host. Nothing is
// added while the id is empty.
func As(host func() (hostID string, epoch int64)) Setting {
	return func(c *Client) { c.as = host }
}

// ForCaller makes every request with an op id name its caller in api.CallerHeader. The function
// returns the caller of an op id, or "" for none.
func ForCaller(caller func(key string) string) Setting {
	return func(c *Client) { c.caller = caller }
}

// DialedBy sets the function that connects to the address of an https:// target, for a sandboxed
// process without network access. The client does the TLS. dial returns errors like net.Dialer.
func DialedBy(dial func(ctx context.Context, address string) (net.Conn, error)) Setting {
	return func(c *Client) { c.dial = dial }
}

// OfRegistry makes a client of several URLs refuse every registry except the registry with the id
// that known returns. While known returns "", the first registry that answers is accepted.
func OfRegistry(known func() string) Setting {
	return func(c *Client) { c.known = known }
}

// New returns a client of the server at target: unix:///path, the absolute path of a socket,
// https://host[:port], or several URLs of one registry, separated by commas. It connects at the
// first request.
func New(target string, settings ...Setting) (*Client, error) {
	c := &Client{connection: connection{unavailable: api.CodeHypervisorUnavailable}}
	for _, set := range settings {
		set(c)
	}
	var err error
	if IsList(target) {
		c.failover, err = c.connectToAny(strings.Split(target, ","), c.known)
	} else {
		err = c.connectTo(target)
	}
	if err != nil {
		return nil, err
	}
	c.http = &http.Client{
		Transport: c.transport,
		// The servers do not redirect, and no other server may get the certificate.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// IsList reports whether a target is a comma-separated list of URLs. The path of a socket may
// contain a comma.
func IsList(target string) bool {
	return strings.HasPrefix(target, "https://") && strings.Contains(target, ",") || strings.Contains(target, ",https://")
}

// Target returns the server's address for messages, in the form of New.
func (c *Client) Target() string { return c.target }

// Credentials returns the client's certificate, or nil for a Unix socket.
func (c *Client) Credentials() *mtls.Credentials { return c.credentials }

// Transport returns a round tripper and a base URL, for a proxy: a request to that URL uses the
// client's connections. Errors are as for Do.
func (c *Client) Transport() (http.RoundTripper, *url.URL) {
	base := *c.base
	return explaining{&c.connection}, &base
}

// Close closes the idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Option changes one request.
type Option func(*call)

type call struct {
	key       string
	extraWait time.Duration
	within    time.Duration
	whole     bool
	noun      string
	next      *string
	needs     []string
}

func newCall(opts []Option) (c call) {
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

// IdempotencyKey sends the request with the op id key: the server executes it once, even if it is
// repeated.
func IdempotencyKey(key string) Option { return func(c *call) { c.key = key } }

// waitLonger extends the timeout by d, for a request that asks the server to delay its answer.
func waitLonger(d time.Duration) Option { return func(c *call) { c.extraWait = d } }

// Within replaces Timeout for this Do.
func Within(d time.Duration) Option { return func(c *call) { c.within = d } }

// Whole makes Do decode the whole answer into out, for members such as stale and age_seconds.
func Whole() Option { return func(c *call) { c.whole = true } }

// noun makes Do decode only this member of the answer. A newer program may add other members.
func noun(name string) Option { return func(c *call) { c.noun = name } }

// nextOf makes Do set next to the cursor of a list's next page, "" if there is none.
func nextOf(next *string) Option { return func(c *call) { c.next = next } }

// Do sends in (nil for no body) and decodes the answer into out (nil ignores it): the answer's
// only member, or the whole answer if it has several members. path may have a query.
//
// The error is an *api.Error, or wraps the error of ctx if ctx ended first. If the connection
// broke after the request was sent, the error has the detail "maybe_done": true; the caller may
// repeat the request with the same Idempotency-Key. A request that needs a feature which the
// server lacks is not sent, and the error is state_forbidden.
func (c *Client) Do(ctx context.Context, method, path string, in, out any, opts ...Option) error {
	options := newCall(opts)
	options.needs = protocol.Needs(in)
	timeout := c.timeout + options.extraWait
	switch {
	case options.within != 0:
		timeout = options.within
	case c.timeout == 0:
		return c.do(ctx, method, path, in, out, options)
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := c.do(bounded, method, path, in, out, options)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		if method == http.MethodGet {
			return api.Errorf(c.unavailable, "%s does not answer within %s", c.target, timeout)
		}
		return api.Errorf(c.unavailable, "%s does not answer within %s; the request may have been done", c.target, timeout).With("maybe_done", true)
	}
	return err
}

func (c *Client) do(ctx context.Context, method, path string, in, out any, options call) error {
	if err := c.checkNeeds(ctx, options.needs); err != nil {
		return err
	}
	resp, err := c.send(ctx, method, path, in, options)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	_ = resp.Body.Close()
	if err != nil {
		return c.transportError(ctx, err)
	}
	if out == nil {
		return nil
	}
	return decodeAnswer(method, path, body, out, options)
}

// send returns an answer with a 2xx status. The caller closes its body.
func (c *Client) send(ctx context.Context, method, path string, in any, options call) (*http.Response, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, api.Errorf(api.CodeInternal, "internal error: encode request %s %s: %v", method, path, err)
		}
	}
	resp, err := c.roundTrip(ctx, method, path, body, options)
	if err != nil {
		return nil, c.transportError(ctx, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		err := c.answeredError(resp)
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

func (c *Client) roundTrip(ctx context.Context, method, path string, body []byte, options call) (*http.Response, error) {
	var written atomic.Int32
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { written.Add(1) }})
	r, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if options.key != "" {
		r.Header.Set(api.IdempotencyKeyHeader, options.key)
	}
	protocol.Announce(r.Header)
	protocol.Require(r.Header, options.needs)
	sent := time.Now()
	resp, err := c.http.Do(r)
	if err == nil {
		c.clock.note(resp.Header, sent, time.Now())
	}
	return resp, wasSent(err, int(written.Load()))
}

func (c *Client) answeredError(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var e api.ErrorBody
	if err == nil && json.Unmarshal(body, &e) == nil && e.Error != nil {
		return e.Error
	}
	return api.Errorf(api.CodeInternal, "the answer was %s, which is not Volferry's way to say it; is %s the right place?", resp.Status, c.target)
}

var remarks = []string{"schema_version", "stale", "age_seconds", "already_adopted"}

func decodeAnswer(method, path string, body []byte, out any, options call) error {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(body, &document); err != nil {
		return api.Errorf(api.CodeInternal, "cannot read the answer to %s %s: %v", method, path, err)
	}
	var version int
	if err := json.Unmarshal(document["schema_version"], &version); err != nil || version != api.SchemaVersion {
		return api.Errorf(api.CodeInternal, "cannot read the answer to %s %s: its schema version is %q and this program knows %d", method, path, document["schema_version"], api.SchemaVersion)
	}
	for _, remark := range remarks {
		delete(document, remark)
	}
	if options.next != nil {
		next, err := NextIn(document)
		if err != nil {
			return api.Errorf(api.CodeInternal, "cannot read the answer to %s %s: %v", method, path, err)
		}
		*options.next = next
	}
	value := json.RawMessage(body)
	switch named, there := document[options.noun]; {
	case options.whole:
	case there && options.noun != "":
		value = named
	case len(document) == 1:
		for _, only := range document {
			value = only
		}
	}
	if err := json.Unmarshal(value, out); err != nil {
		return api.Errorf(api.CodeInternal, "cannot read the answer to %s %s: %v", method, path, err)
	}
	return nil
}

// ClockAhead returns by how much, at least, the server's clock was ahead of this host's clock at
// the last answer; the value is negative if it was slow. It returns false before the first answer.
func (c *Client) ClockAhead() (time.Duration, bool) {
	ahead := c.clock.ahead.Load()
	if ahead == nil {
		return 0, false
	}
	return *ahead, true
}

// checkNeeds makes the check of CheckPeer. If the server's features are unknown, it first requests
// them.
func (c *Client) checkNeeds(ctx context.Context, needs []string) error {
	if len(needs) == 0 {
		return nil
	}
	if _, known := c.Peer(); !known {
		route := routes.ShowRegistryVersion
		resp, err := c.send(ctx, route.Method, route.PathOf(), nil, call{})
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
	}
	return c.CheckPeer(needs)
}
