// SPDX-License-Identifier: Apache-2.0

// Package client speaks to volferryd and volferry-registry over HTTP. It owns
// how a request gets there and how an answer or an error comes back; it decides
// nothing and keeps nothing.
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
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// maxAnswerBytes bounds what an answer may take of our memory.
const maxAnswerBytes = 64 << 20

// Client sends requests to one daemon. It is safe for concurrent use.
type Client struct {
	http        *http.Client
	socket      string
	unavailable api.Code
	timeout     time.Duration
}

// Setting changes how a Client is made.
type Setting func(*Client)

// UnavailableAs sets the code of the error for a daemon that cannot be
// reached; CodeHypervisorUnavailable unless set.
func UnavailableAs(code api.Code) Setting {
	return func(c *Client) { c.unavailable = code }
}

// Timeout bounds each Do: a daemon that hangs is as good as one that cannot be
// reached. No bound unless set; streams have none.
func Timeout(d time.Duration) Setting {
	return func(c *Client) { c.timeout = d }
}

// New returns a client of the daemon at target, which is unix:///path or the
// absolute path of a socket. It connects with the first request.
func New(target string, settings ...Setting) (*Client, error) {
	path, err := socketPath(target)
	if err != nil {
		return nil, err
	}
	c := &Client{socket: path, unavailable: api.CodeHypervisorUnavailable}
	for _, set := range settings {
		set(c)
	}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		// A daemon closes connections that are idle for longer.
		IdleConnTimeout: time.Minute,
	}}
	return c, nil
}

func socketPath(target string) (string, error) {
	path, isURL := strings.CutPrefix(target, "unix://")
	if !isURL && strings.Contains(target, "://") {
		return "", api.Errorf(api.CodeInvalidArgument, "cannot connect to %s: this version speaks over Unix sockets only; give unix:///path", target)
	}
	if !strings.HasPrefix(path, "/") {
		return "", api.Errorf(api.CodeInvalidArgument, "cannot connect to %q: it is no absolute path of a socket; give unix:///path", target)
	}
	return path, nil
}

// Target returns the path of the socket, for messages.
func (c *Client) Target() string { return c.socket }

// Close closes the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Option changes one request.
type Option func(*call)

type call struct {
	key         string
	retryWithin time.Duration
}

// IdempotencyKey sends the request under the op id key: however often it is
// sent, it is done once.
func IdempotencyKey(key string) Option { return func(c *call) { c.key = key } }

// RetryRefused repeats a GET for up to within while nobody listens at the
// socket, as when a daemon restarts. Other methods are sent once.
func RetryRefused(within time.Duration) Option { return func(c *call) { c.retryWithin = within } }

// Do sends in (nil for no body) and fills out (nil to ignore the answer) with
// the value under the answer's noun; an answer with several nouns fills out as
// a whole. Path may have a query.
//
// The error is an *api.Error, or wraps ctx's if ctx ended first. If the
// connection broke after the request was sent, the error has the detail
// "maybe_done": true, and the same Idempotency-Key finds out.
func (c *Client) Do(ctx context.Context, method, path string, in, out any, opts ...Option) error {
	if c.timeout == 0 {
		return c.do(ctx, method, path, in, out, opts...)
	}
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.do(bounded, method, path, in, out, opts...)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return api.Errorf(c.unavailable, "%s does not answer within %s; the request may have been done", c.socket, c.timeout).With("maybe_done", true)
	}
	return err
}

func (c *Client) do(ctx context.Context, method, path string, in, out any, opts ...Option) error {
	resp, err := c.send(ctx, method, path, in, opts)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	// The whole answer was read, or never will be.
	_ = resp.Body.Close()
	if err != nil {
		return c.transportError(ctx, err)
	}
	if out == nil {
		return nil
	}
	return decodeAnswer(method, path, body, out)
}

// send returns an answer of a 2xx status, whose body the caller closes.
func (c *Client) send(ctx context.Context, method, path string, in any, opts []Option) (*http.Response, error) {
	var (
		options call
		body    []byte
	)
	for _, opt := range opts {
		opt(&options)
	}
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
		err := answeredError(resp)
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// roundTrip sends the request, and again while that is asked for and sensible.
func (c *Client) roundTrip(ctx context.Context, method, path string, body []byte, options call) (*http.Response, error) {
	deadline := time.Now().Add(options.retryWithin)
	for pause := 20 * time.Millisecond; ; pause *= 2 {
		// The host is for the Host header; the dialer knows the way.
		r, err := http.NewRequestWithContext(ctx, method, "http://volferry"+path, bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("make request: %w", err)
		}
		if body != nil {
			r.Header.Set("Content-Type", "application/json")
		}
		if options.key != "" {
			r.Header.Set(api.IdempotencyKeyHeader, options.key)
		}
		resp, err := c.http.Do(r)
		if err == nil || method != http.MethodGet || !refused(err) || time.Now().Add(pause).After(deadline) {
			return resp, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// refused says whether err means that nobody listens: nothing was sent.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// transportError says what it means for the caller that no answer came.
func (c *Client) transportError(ctx context.Context, err error) error {
	var dial *net.OpError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait for %s: %w", c.socket, ctx.Err())
	case refused(err):
		return api.Errorf(c.unavailable, "cannot connect to %s: nobody listens there", c.socket)
	case errors.Is(err, syscall.EACCES):
		return api.Errorf(api.CodePermissionDenied, "cannot connect to %s: permission denied; be root or a member of the socket's group", c.socket)
	case errors.As(err, &dial) && dial.Op == "dial":
		return api.Errorf(c.unavailable, "cannot connect to %s: %v", c.socket, dial.Err)
	default:
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return api.Errorf(c.unavailable, "the connection to %s broke before the answer came (%v); the request may have been done", c.socket, err).With("maybe_done", true)
	}
}

// answeredError returns the error that the daemon answered.
func answeredError(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var e api.ErrorBody
	if err == nil && json.Unmarshal(body, &e) == nil && e.Error != nil {
		return e.Error
	}
	return api.Errorf(api.CodeInternal, "the answer was %s, which is not Volferry's way to say it; is this the right socket?", resp.Status)
}

func decodeAnswer(method, path string, body []byte, out any) error {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(body, &document); err != nil {
		return api.Errorf(api.CodeInternal, "cannot read the answer to %s %s: %v", method, path, err)
	}
	var version int
	if err := json.Unmarshal(document["schema_version"], &version); err != nil || version != api.SchemaVersion {
		return api.Errorf(api.CodeInternal, "cannot read the answer to %s %s: its schema version is %q and this program knows %d", method, path, document["schema_version"], api.SchemaVersion)
	}
	delete(document, "schema_version")
	value := json.RawMessage(body)
	if len(document) == 1 {
		for _, only := range document {
			value = only
		}
	}
	if err := json.Unmarshal(value, out); err != nil {
		return api.Errorf(api.CodeInternal, "cannot read the answer to %s %s: %v", method, path, err)
	}
	return nil
}
