// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
)

// Access is the right that a route requires from its caller.
type Access int

// The accesses, weakest first.
const (
	// Read is for routes that change nothing.
	Read Access = iota + 1
	Operate
	// Fence is for routes that take something away from an unreachable host.
	Fence
	// Local is for reports to the registry of a host's actions. No role of an operator allows
	// them, only the local administrator: a false report could take anything away from a host.
	Local
)

// String returns the access as a word for messages.
func (a Access) String() string {
	switch a {
	case Read:
		return "read"
	case Operate:
		return "operate"
	case Fence:
		return "fence"
	case Local:
		return "local"
	}
	return fmt.Sprintf("access %d", int(a))
}

// HostAccess is the right of hosts at a route; Access applies to people only.
type HostAccess int

// The host accesses.
const (
	HostNever HostAccess = iota
	// HostOwn: a host may use the route for its own objects. Other objects are refused with
	// not_your_host, or omitted from a list.
	HostOwn
	// HostAny: the answer belongs to no host, as for versions and types.
	HostAny
)

// String returns the access as a word for the OpenAPI document.
func (h HostAccess) String() string {
	switch h {
	case HostNever:
		return "never"
	case HostOwn:
		return "own"
	case HostAny:
		return "any"
	}
	return fmt.Sprintf("host access %d", int(h))
}

// Route is an entry of a program's API table.
type Route struct {
	Method string
	// Path is a pattern of http.ServeMux without method and host.
	Path    string
	Access  Access
	Hosts   HostAccess
	Summary string
	// Query are the names of the query parameters. Another or a repeated parameter is refused.
	Query []string
	// In is a value of the type of the request's body, nil without a body. Out has the nouns of
	// the answer; Lines is a value of the type of each line of an NDJSON answer. They are for the
	// OpenAPI document.
	In      any
	Out     []Noun
	Lines   any
	Handler Handler
}

// Handler answers a request. An error becomes the answer, unless an answer has begun.
type Handler = func(http.ResponseWriter, *http.Request) error

// Authorizer returns nil if the caller of r may use the route, else a permission_denied error.
type Authorizer func(r *http.Request, route Route) error

// Config configures NewHandler.
type Config struct {
	Routes []Route
	// Elsewhere are the calls that only the other program of Volferry serves.
	Elsewhere []Elsewhere
	Authorize Authorizer
	Program   string
	// Refused, if not nil, is called for every request that does not reach its handler.
	Refused func(r *http.Request, err error)
	Log     *slog.Logger
	// Observe, if not nil, is called for every answered request with a route.
	Observe func(route Route, status int, took time.Duration)
}

// Elsewhere is a call that another program serves. The answer is Err, which names that program.
type Elsewhere struct {
	Method, Path string
	Err          error
}

// NewHandler returns a handler for the routes of c. It answers with an ErrorBody and not_found for
// an unknown path, status 405 for a wrong method, and the code internal after a panic of a route's
// handler. NewHandler panics if two routes clash.
func NewHandler(c Config) http.Handler {
	mux := http.NewServeMux()
	for _, route := range c.Routes {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			c.serve(route, w, r)
		})
	}
	for _, e := range c.Elsewhere {
		mux.HandleFunc(e.Method+" "+e.Path, func(w http.ResponseWriter, _ *http.Request) { WriteError(w, e.Err) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { noRoute(mux, w, r) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol.Announce(w.Header())
		// The mux would answer with HTML and a redirect.
		if clean := path.Clean(r.URL.Path); clean != r.URL.Path {
			WriteError(w, api.Errorf(api.CodeNotFound, "there is nothing at %.200s; a path has no empty part and none of dots", r.URL.Path))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (c Config) serve(route Route, w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	answer := &answerWriter{ResponseWriter: w}
	err := c.call(route, answer, r)
	if err != nil && api.CodeOf(err) == api.CodeInternal && !errors.Is(err, context.Canceled) && !errors.Is(err, errGone) {
		c.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	if err != nil && answer.status == 0 {
		WriteError(answer, err)
	}
	if c.Observe != nil {
		c.Observe(route, answer.status, time.Since(begin))
	}
}

// call turns a panic of the handler into an error: a bug in one request must not end the daemon.
func (c Config) call(route Route, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		what := recover()
		if what == nil {
			return
		}
		if what == http.ErrAbortHandler { //nolint:errorlint // a sentinel that net/http compares the same way
			panic(what)
		}
		c.Log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "err", what, "stack", string(debug.Stack()))
		err = api.Errorf(api.CodeInternal, "internal error: the request ended in a bug of Volferry; the log of the daemon has the details")
	}()
	if err := c.admit(route, r); err != nil {
		if c.Refused != nil {
			c.Refused(r, err)
		}
		return err
	}
	return route.Handler(w, r)
}

func (c Config) admit(route Route, r *http.Request) error {
	if err := c.Authorize(r, route); err != nil {
		return err
	}
	if err := protocol.Own().Check(c.Program, protocol.RequiredBy(r.Header)); err != nil {
		return err
	}
	return checkQuery(r, route)
}

// noRoute answers 405 if another method has a route, else not_found.
func noRoute(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := mux.Handler(probe); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		WriteError(w, api.Errorf(api.CodeNotFound, "there is nothing at %.200s; /v1/openapi.json lists what there is", r.URL.Path))
		return
	}
	allow := strings.Join(allowed, ", ")
	w.Header().Set("Allow", allow)
	writeError(w, http.StatusMethodNotAllowed,
		api.Errorf(api.CodeInvalidArgument, "%.20s is no method of %s; it has %s", r.Method, r.URL.Path, allow))
}

type answerWriter struct {
	http.ResponseWriter
	status int
}

func (w *answerWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	if err != nil {
		return n, fmt.Errorf("write answer: %w", err)
	}
	return n, nil
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// checkQuery refuses query parameters that the route lacks, and repeated ones.
func checkQuery(r *http.Request, route Route) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return api.Errorf(api.CodeInvalidArgument, "the query of the request cannot be read: %v", err)
	}
	for name, given := range values {
		if !slices.Contains(route.Query, name) {
			return api.Errorf(api.CodeInvalidArgument, "%q is no query parameter of %s", name, r.URL.Path)
		}
		if len(given) > 1 {
			return api.Errorf(api.CodeInvalidArgument, "the query parameter %q is given %d times", name, len(given))
		}
	}
	return nil
}
