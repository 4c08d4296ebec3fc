// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// refused reports whether err means that no process listens: nothing was sent.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// sentError is the error of a request's last attempt if an earlier attempt was sent: net/http
// repeats a request with an Idempotency-Key if a kept connection breaks. The earlier attempt's
// outcome is unknown.
type sentError struct{ err error }

func (e *sentError) Error() string { return e.err.Error() }
func (e *sentError) Unwrap() error { return e.err }

// wasSent returns err as a sentError if the request was sent and err alone does not show that.
// written is how many times it was sent.
func wasSent(err error, written int) error {
	var (
		op        *net.OpError
		handshake *handshakeError
	)
	neverWritten := refused(err) || errors.Is(err, syscall.EACCES) || errors.As(err, &handshake) || errors.As(err, &op) && op.Op == "dial"
	if err != nil && (written > 1 || written == 1 && neverWritten) {
		return &sentError{err}
	}
	return err
}

func (c *connection) transportError(ctx context.Context, err error) error {
	var (
		op        *net.OpError
		handshake *handshakeError
		sent      *sentError
		explained *api.Error
	)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait for %s: %w", c.target, ctx.Err())
	case errors.As(err, &explained): // of a member of several URLs
		return explained
	case errors.As(err, &sent):
	case errors.Is(err, syscall.ENOENT):
		return api.Errorf(c.unavailable, "cannot connect to %s: there is no such socket", c.target)
	case refused(err):
		return api.Errorf(c.unavailable, "cannot connect to %s: nobody listens there", c.target)
	case errors.Is(err, syscall.EACCES):
		return api.Errorf(api.CodePermissionDenied, "cannot connect to %s: permission denied; be root or a member of the socket's group", c.target)
	case errors.As(err, &op) && op.Op == "dial":
		return api.Errorf(c.unavailable, "cannot connect to %s: %v", c.target, op.Err)
	case errors.As(err, &op) && op.Op == "remote error" && ofHandshake(op.Err):
		// In TLS 1.3 the server checks the client's certificate after the client's handshake is
		// over. It has read nothing that was sent since.
		return api.Errorf(c.unavailable, "%s refused us (%v): %s; it may be missing, revoked, expired or of another authority there, and the log of the registry says which", c.target, op.Err, c.credentials).With(api.DetailDistrust, api.DistrustsCaller)
	case errors.As(err, &handshake):
		return c.handshakeError(handshake.err)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return api.Errorf(c.unavailable, "the connection to %s broke before the answer came (%v); the request may have been done", c.target, err).With("maybe_done", true)
}

func ofHandshake(alert error) bool {
	text := alert.Error()
	for _, word := range []string{"certificate", "access denied", "handshake failure", "protocol version"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

func (c *connection) handshakeError(err error) error {
	var (
		name    x509.HostnameError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		record  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &name):
		return api.Errorf(c.unavailable, "cannot trust %s: its certificate is of another name (%v); use a name that it has, or make one with %s", c.target, name, shell.Line("volferry-registry", "issue-cert", "server", c.base.Hostname())).With(api.DetailDistrust, api.DistrustsServer)
	case errors.As(err, &unknown):
		return api.Errorf(c.unavailable, "cannot trust %s: its certificate is not of the authority in %s; copy the registry's ca.crt there if this is the right registry", c.target, c.tlsFiles.ca).With(api.DetailDistrust, api.DistrustsServer)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return api.Errorf(c.unavailable, "cannot trust %s: its certificate is good from %s to %s, and here it is %s; make a new one with volferry-registry issue-cert server, or set the clock",
			c.target, invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339)).With(api.DetailDistrust, api.DistrustsServer)
	case errors.As(err, &record):
		return api.Errorf(c.unavailable, "cannot connect to %s: what answers there does not speak TLS; is it the registry's port?", c.target)
	case errors.Is(err, context.DeadlineExceeded):
		return api.Errorf(c.unavailable, "cannot connect to %s: the handshake took too long", c.target)
	}
	return api.Errorf(c.unavailable, "cannot connect to %s: %v", c.target, err)
}

type explaining struct{ c *connection }

func (e explaining) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.c.transport.RoundTrip(r)
	if err != nil {
		return nil, e.c.transportError(r.Context(), err)
	}
	return resp, nil
}
