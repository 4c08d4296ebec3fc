// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// failover sends requests to one registry, at the URL where it answers. See DESIGN.md.
type failover struct {
	members []*connection
	known   func() string
	// reports: a session sends changes only after it has sent a report of this host.
	reports bool

	mu      sync.Mutex
	current *session
	// first is the id of the registry that answered first.
	first    string
	failures []error
}

func (c *connection) connectToAny(targets []string, known func() string) (*failover, error) {
	f := &failover{known: known, reports: c.as != nil, failures: make([]error, len(targets))}
	var names []string
	for _, target := range targets {
		target = strings.TrimSpace(target)
		if !strings.HasPrefix(target, "https://") {
			return nil, api.Errorf(api.CodeInvalidArgument, "cannot connect to %q: a list of registries has URLs like https://host:7643, with commas between them", target)
		}
		member := &connection{unavailable: c.unavailable, tlsFiles: c.tlsFiles}
		if err := member.connectTo(target); err != nil {
			return nil, err
		}
		member.dial = c.dial
		for _, name := range names {
			if name == member.target {
				return nil, api.Errorf(api.CodeInvalidArgument, "%s is twice in the list of registries", name)
			}
		}
		names = append(names, member.target)
		f.members = append(f.members, member)
	}
	f.current = f.newSession(0)
	c.target, c.base, c.credentials = strings.Join(names, ","), f.members[0].base, f.members[0].credentials
	c.transport = listening{c.speakingAs(f), c}
	return f, nil
}

func (f *failover) inUse() *session {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// replace replaces s, unless that is done already, by a new session with the member at index. It
// returns the session in use.
func (f *failover) replace(s *session, index int) *session {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == s {
		f.current = f.newSession(index % len(f.members))
		s.transport.CloseIdleConnections()
	}
	return f.current
}

func (f *failover) note(index int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures[index] = err
}

func (f *failover) CloseIdleConnections() { f.inUse().transport.CloseIdleConnections() }

type reportKey struct{}

func asReport(ctx context.Context) context.Context { return context.WithValue(ctx, reportKey{}, true) }

type changeKey struct{}

func asChange(ctx context.Context) context.Context { return context.WithValue(ctx, changeKey{}, true) }

func (f *failover) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	isReport := ctx.Value(reportKey{}) != nil
	isChange := r.Method != http.MethodGet && r.Method != http.MethodHead || ctx.Value(changeKey{}) != nil
	failed := make([]error, len(f.members))
	s := f.inUse()
	for first := true; ; first = false {
		if f.reports && isChange && !isReport && !s.reported.Load() {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, f.reportFirst(s)
		}
		attempt, err := s.request(r, first)
		if err != nil {
			return nil, err
		}
		resp, written, err := s.roundTrip(attempt)
		if err == nil {
			f.note(s.index, nil)
			if isReport && resp.StatusCode < http.StatusInternalServerError {
				s.reported.Store(true)
			}
			return resp, nil
		}
		// A request without changes may be repeated.
		if written > 0 && isChange || ctx.Err() != nil {
			if written > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				f.replace(s, s.index) // a new session must show that the process does not hang
			}
			return nil, s.member.transportError(ctx, wasSent(err, written))
		}
		why := s.member.transportError(ctx, wasSent(err, written))
		if errors.Is(err, errOtherProcess) {
			s = f.replace(s, s.index)
		} else {
			f.note(s.index, why)
			failed[s.index] = why
			s = f.replace(s, s.index+1)
		}
		if failed[s.index] != nil {
			return nil, cmp.Or(f.unreachable(), why)
		}
		if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
			return nil, why // the next request goes there
		}
	}
}

func (f *failover) reportFirst(s *session) error {
	e := api.Errorf(s.member.unavailable, "nothing was sent to the registry at %s: it has not answered a report of this host yet", s.member.target)
	if down := f.unreachable(); down != nil {
		e = api.AsError(down)
	}
	return e.With(api.DetailReportFirst, true)
}

func (f *failover) unreachable() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var (
		texts    []string
		distrust any
	)
	for _, err := range f.failures {
		if err == nil {
			return nil
		}
		texts = append(texts, err.Error())
		if of := api.AsError(err).Details[api.DetailDistrust]; distrust == nil {
			distrust = of
		}
	}
	e := api.Errorf(f.members[0].unavailable, "no registry can be reached: %s", strings.Join(texts, "; "))
	if distrust != nil {
		e = e.With(api.DetailDistrust, distrust)
	}
	return e
}

var errOtherProcess = errors.New("another process of the registry answers than before")

// session holds the connections to one process of a registry through one URL.
type session struct {
	f         *failover
	index     int
	member    *connection
	transport *tlsTransport
	// reported: a report of this host was answered.
	reported atomic.Bool

	mu sync.Mutex
	// process is the id of the process, "" before the first connection.
	process string
}

func (f *failover) newSession(index int) *session {
	member := f.members[index]
	s := &session{f: f, index: index, member: member}
	s.transport = &tlsTransport{
		credentials: member.credentials, serverName: member.base.Hostname(), connect: member.dial,
		timeout: max(connectTimeout/time.Duration(len(f.members)), minConnectTimeout), check: s.check,
	}
	return s
}

func (s *session) request(r *http.Request, first bool) (*http.Request, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host = s.member.base.Scheme, s.member.base.Host, s.member.base.Host
	if first || r.GetBody == nil {
		return out, nil
	}
	body, err := r.GetBody()
	out.Body = body
	return out, err //nolint:wrapcheck // of a reader of bytes
}

func (s *session) roundTrip(r *http.Request) (resp *http.Response, written int, err error) {
	var count atomic.Int32
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteHeaders: func() { count.Add(1) }})
	resp, err = s.transport.RoundTrip(r.WithContext(ctx))
	return resp, int(count.Load()), err
}

// check refuses a new connection if another registry answers, or another process than the
// session's.
func (s *session) check(ctx context.Context, conn net.Conn) error {
	id, process, err := s.member.identify(ctx, conn)
	if err != nil {
		return err
	}
	if err := s.f.checkID(s.member, id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != "" && s.process != process {
		return errOtherProcess
	}
	s.process = process
	return nil
}

func (f *failover) checkID(member *connection, id string) error {
	want := ""
	if f.known != nil {
		want = f.known()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if want == "" {
		want = f.first
	}
	if want != "" && want != id {
		return api.Errorf(member.unavailable, "%s is another registry, with a database of its own (%s), than the one that was in use (%s): "+
			"a list has the places of one registry alone", member.target, id, want).With(api.DetailDistrust, api.DistrustsServer)
	}
	f.first = id
	return nil
}
