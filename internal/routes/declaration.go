// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"

	"github.com/volferry/volferry/internal/httpjson"
)

// A list of the registry comes in pages for a program that announces protocol.Pages, and for a
// request with AfterParameter. A page has the things whose keys follow that parameter, which is
// empty for the first page, in the order of the keys. A key never changes, so a thing that is
// there all the time is in one of the pages, whatever becomes of the others meanwhile.
const (
	// AfterParameter is the query parameter with the Next of the page before.
	AfterParameter = "after"
	// Next is the member of an answer that is a page and not the last one. It stands beside the
	// noun, and its value means nothing to a client.
	Next = "next"
)

// Declaration is all that is declared of a route but its types.
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
	// order is a func(a, b T) int, of a list that the registry answers in pages.
	order any
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
	// Answers says that the host does it. A change is refused while the host is fenced.
	// The registry may ask for it by a task.
	Answers Part = iota + 1
	// Streams says that the host answers with a stream, which no task can carry.
	Streams
	// PassesOn says that the registry answers. As a task the call would go back where it
	// came from.
	PassesOn
	// Remembers says that the registry answers, and that while it is away the daemon
	// answers with what the registry said last.
	Remembers
)

// ByRegistry reports whether the registry answers what the daemon is asked.
func (p Part) ByRegistry() bool { return p == PassesOn || p == Remembers }

var all []*Declaration

// All returns every route of both programs.
func All() []*Declaration { return slices.Clone(all) }

// In returns a value of the type of the body of a request; nil if it has none.
func (d *Declaration) In() any { return d.in }

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

// ServedByDaemon returns the route with the daemon's handler. It panics if the daemon is not
// declared to have it.
func (d *Declaration) ServedByDaemon(h httpjson.Handler) httpjson.Route {
	if d.Daemon == nil {
		panic(d.String() + " is no route of the daemon")
	}
	served := d.served(d.Daemon.Query, h)
	if d.order != nil && d.Daemon.Part.ByRegistry() {
		served.Out = withNext(served.Out)
	}
	if d.Daemon.Part == Remembers {
		served.Out = append(slices.Clip(served.Out), httpjson.Noun{Name: "stale", Value: false}, httpjson.Noun{Name: "age_seconds", Value: 0.0})
	}
	return served
}

// ServedByRegistry returns the route with the registry's handler. It panics if the registry
// is not declared to have it.
func (d *Declaration) ServedByRegistry(h httpjson.Handler) httpjson.Route {
	if d.Registry == nil {
		panic(d.String() + " is no route of the registry")
	}
	served := d.served(d.Registry.Query, h)
	served.Hosts = d.Registry.Hosts
	if d.order != nil {
		served.Out = withNext(served.Out)
	}
	return served
}

func (d *Declaration) served(query []string, h httpjson.Handler) httpjson.Route {
	return httpjson.Route{
		Method: d.Method, Path: d.Path, Access: d.Access, Summary: d.Summary, Query: query,
		In: d.in, Out: d.out, Lines: d.lines, Handler: h,
	}
}

// addPages adds the query parameter where the registry answers.
func (d *Declaration) addPages() {
	if d.Registry != nil {
		d.Registry.Query = append(d.Registry.Query, AfterParameter)
	}
	if d.Daemon != nil && d.Daemon.Part.ByRegistry() {
		d.Daemon.Query = append(d.Daemon.Query, AfterParameter)
	}
}

func withNext(out []httpjson.Noun) []httpjson.Noun {
	return append(slices.Clip(out), httpjson.Noun{Name: Next, Value: ""})
}
