// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// Route is a call with the type of its body and the type of its answer. A route
// without a body has None for In, one without an answer of its own None for Out.
type Route[In, Out any] struct {
	*Declaration
	query url.Values
}

// None stands for a body or an answer that a route does not have.
type None struct{}

// With is the route with a query parameter for requests, unless its value is empty.
func (r Route[In, Out]) With(name, value string) Route[In, Out] {
	if value == "" {
		return r
	}
	r.query = maps.Clone(r.query)
	if r.query == nil {
		r.query = url.Values{}
	}
	r.query.Set(name, value)
	return r
}

// PathOf is Declaration.PathOf with the query parameters of With.
func (r Route[In, Out]) PathOf(refs ...string) string {
	path := r.Declaration.PathOf(refs...)
	if len(r.query) > 0 {
		path += "?" + r.query.Encode()
	}
	return path
}

// WithoutBody is the route for who leaves out a body that need not be there, and for a
// server that does not read it.
func (r Route[In, Out]) WithoutBody() Route[None, Out] {
	return Route[None, Out](r)
}

// Body is what a client sends for in: nil for None.
func (r Route[In, Out]) Body(in In) any {
	if _, none := any(in).(None); none {
		return nil
	}
	return in
}

// Decode reads the body of a request, as httpjson.Decode does. Where there is None to
// read it is not looked at.
func (r Route[In, Out]) Decode(req *http.Request) (in In, err error) {
	if _, none := any(in).(None); none {
		return in, nil
	}
	return in, httpjson.Decode(req, &in)
}

// Write answers with a document that has out under the route's noun.
func (r Route[In, Out]) Write(w http.ResponseWriter, status int, out Out) error {
	return httpjson.Write(w, status, r.Noun, out)
}

// Stream is a route that answers with events, one per line, until there are no more.
type Stream = Route[None, api.Event]

// Declaration is what there is to know of a route, whatever its types.
type Declaration struct {
	Method string
	// Path is a pattern of http.ServeMux without method and host.
	Path string
	// Noun is the member of the answer that holds Out. It is empty where Out is the
	// whole answer, and where there is none.
	Noun    string
	Access  httpjson.Access
	Summary string
	// Daemon and Registry say how each program serves the route; nil if it does not.
	Daemon   *AtDaemon
	Registry *AtRegistry

	query []string
	in    any
	out   []httpjson.Noun
	lines any
}

// AtDaemon is a route as the daemon serves it.
type AtDaemon struct {
	Part Part
	// Query are the names of its query parameters.
	Query []string
}

// AtRegistry is a route as the registry serves it.
type AtRegistry struct {
	Hosts httpjson.HostAccess
	// Query are the names of its query parameters.
	Query []string
}

// Part is what the daemon does about a call.
type Part int

const (
	// Answers is of what the host does itself. What changes something is refused while
	// the host is fenced. The registry may ask for it by a task.
	Answers Part = iota + 1
	// Streams is the same with an answer that lasts, which no task can carry.
	Streams
	// PassesOn is of what the registry answers. It may not come as a task: it would
	// go back where it came from.
	PassesOn
	// Remembers is of reads that are passed on, and are answered from what the registry
	// last said while that is away.
	Remembers
)

// ByRegistry says whether the registry answers what the daemon is asked.
func (p Part) ByRegistry() bool { return p == PassesOn || p == Remembers }

var all []*Declaration

// All returns every route of both programs.
func All() []*Declaration { return slices.Clone(all) }

// String returns the route as net/http calls it: its method and its path.
func (d *Declaration) String() string { return d.Method + " " + d.Path }

var wildcard = regexp.MustCompile(`\{\w+\}`)

// PathOf returns the path of a request, with refs in the places of the wildcards. It
// panics if there are not as many: that is a mistake of the caller's code.
func (d *Declaration) PathOf(refs ...string) string {
	if want := len(wildcard.FindAllString(d.Path, -1)); want != len(refs) {
		panic(fmt.Sprintf("%s names %d things and was given %q", d, want, refs))
	}
	return wildcard.ReplaceAllStringFunc(d.Path, func(string) string {
		ref := refs[0]
		refs = refs[1:]
		return url.PathEscape(ref)
	})
}

// ServedByDaemon is the route with the daemon's handler. It panics if the daemon is not
// declared to have it.
func (d *Declaration) ServedByDaemon(h httpjson.Handler) httpjson.Route {
	if d.Daemon == nil {
		panic(d.String() + " is no route of the daemon")
	}
	served := d.served(d.Daemon.Query, h)
	if d.Daemon.Part == Remembers {
		served.Out = append(slices.Clip(served.Out), httpjson.Noun{Name: "stale", Value: false}, httpjson.Noun{Name: "age_seconds", Value: 0.0})
	}
	return served
}

// ServedByRegistry is the route with the registry's handler. It panics if the registry
// is not declared to have it.
func (d *Declaration) ServedByRegistry(h httpjson.Handler) httpjson.Route {
	if d.Registry == nil {
		panic(d.String() + " is no route of the registry")
	}
	served := d.served(d.Registry.Query, h)
	served.Hosts = d.Registry.Hosts
	return served
}

func (d *Declaration) served(query []string, h httpjson.Handler) httpjson.Route {
	return httpjson.Route{
		Method: d.Method, Path: d.Path, Access: d.Access, Summary: d.Summary, Query: query,
		In: d.in, Out: d.out, Lines: d.lines, Handler: h,
	}
}

// option is something that is said of a route beside its types, path and summary.
type option func(*Declaration)

// daemon says that the daemon has the route.
func daemon(part Part) option {
	return func(d *Declaration) { d.Daemon = &AtDaemon{Part: part} }
}

// registry says that the registry has the route, what hosts may do there, and which
// query parameters there are at the registry alone.
func registry(hosts httpjson.HostAccess, query ...string) option {
	return func(d *Declaration) { d.Registry = &AtRegistry{Hosts: hosts, Query: query} }
}

// The words for host access, in declarations.
const (
	never = httpjson.HostNever
	own   = httpjson.HostOwn
	anyOf = httpjson.HostAny
)

// query names the parameters that the route has at every program.
func query(names ...string) option { return func(d *Declaration) { d.query = names } }

// needs asks for more of the caller than the method does.
func needs(a httpjson.Access) option { return func(d *Declaration) { d.Access = a } }

// also names a member that an answer may have beside its noun.
func also[T any](noun string) option {
	var none T
	return func(d *Declaration) { d.out = append(d.out, httpjson.Noun{Name: noun, Value: none}) }
}

// begins says that the answer is of an op which goes on: it stands beside the noun.
var begins = also[api.Op]("op")

// declare adds a route to All.
func declare[In, Out any](access httpjson.Access, method, path, noun, summary string, options []option) Route[In, Out] {
	d := &Declaration{Method: method, Path: path, Noun: noun, Access: access, Summary: summary}
	var (
		in  In
		out Out
	)
	if _, none := any(in).(None); !none {
		d.in = in
	}
	if noun != "" {
		d.out = []httpjson.Noun{{Name: noun, Value: out}}
	}
	for _, o := range options {
		o(d)
	}
	if d.Daemon != nil {
		d.Daemon.Query = d.query
	}
	if d.Registry != nil {
		d.Registry.Query = append(d.Registry.Query, d.query...)
	}
	all = append(all, d)
	return Route[In, Out]{Declaration: d}
}

func get[Out any](path, noun, summary string, options ...option) Route[None, Out] {
	return declare[None, Out](httpjson.Read, http.MethodGet, path, noun, summary, options)
}

func post[In, Out any](path, noun, summary string, options ...option) Route[In, Out] {
	return declare[In, Out](httpjson.Operate, http.MethodPost, path, noun, summary, options)
}

func put[In, Out any](path, noun, summary string, options ...option) Route[In, Out] {
	return declare[In, Out](httpjson.Operate, http.MethodPut, path, noun, summary, options)
}

func patch[In, Out any](path, noun, summary string, options ...option) Route[In, Out] {
	return declare[In, Out](httpjson.Operate, http.MethodPatch, path, noun, summary, options)
}

func remove[Out any](path, noun, summary string, options ...option) Route[None, Out] {
	return declare[None, Out](httpjson.Operate, http.MethodDelete, path, noun, summary, options)
}

// report is a post by which a daemon tells the registry of its own host.
func report[In, Out any](path, noun, summary string, options ...option) Route[In, Out] {
	return declare[In, Out](httpjson.Local, http.MethodPost, path, noun, summary, append([]option{registry(own)}, options...))
}

func stream(path, summary string, options ...option) Stream {
	s := get[api.Event](path, "", summary+" (NDJSON)", append(options, query("since"))...)
	s.lines = api.Event{}
	return s
}
