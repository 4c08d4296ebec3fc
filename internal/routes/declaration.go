// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"

	"github.com/volferry/volferry/internal/httpjson"
)

// The registry sends a list in pages to a program that announces protocol.Pages, and for a request
// with AfterParameter. A page has the things with keys greater than that parameter, in the order
// of the keys. Keys never change, so a thing that exists all the time is in one of the pages.
const (
	// AfterParameter is the query parameter with the Next of the previous page.
	AfterParameter = "after"
	// Next is a member of each page except the last. Its value is opaque to clients.
	Next = "next"
)

// Declaration is a route without the Go types of its body and its answer.
type Declaration struct {
	Method string
	Path   string
	// Noun is the member of the answer that holds Out. It is empty if there is none, or Out is the
	// whole answer.
	Noun    string
	Access  httpjson.Access
	Summary string
	// Daemon or Registry is nil if that program does not serve the route.
	Daemon   *AtDaemon
	Registry *AtRegistry

	query []string
	in    any
	out   []httpjson.Noun
	lines any
	// order is a func(a, b T) int, for a list that the registry sends in pages.
	order any
}

// AtDaemon is how the daemon serves a route.
type AtDaemon struct {
	Part  Part
	Query []string
}

// AtRegistry is how the registry serves a route.
type AtRegistry struct {
	Hosts httpjson.HostAccess
	Query []string
}

// Part is how the daemon takes part in a call.
type Part int

const (
	// Answers means that the host serves the call, also by a task. A change is refused while the
	// host is fenced.
	Answers Part = iota + 1
	// Streams means that the host answers with a stream, which a task cannot transport.
	Streams
	// PassesOn means that the registry serves the call. A task would return it to the registry.
	PassesOn
	// Remembers means that the registry serves the call, or while it is silent the daemon, with the
	// registry's last answer.
	Remembers
)

// ByRegistry reports whether the daemon passes the call on to the registry, which serves it.
func (p Part) ByRegistry() bool { return p == PassesOn || p == Remembers }

var all []*Declaration

// All returns every route of both programs.
func All() []*Declaration { return slices.Clone(all) }

// In returns a value of the type of the request's body, or nil.
func (d *Declaration) In() any { return d.in }

// String returns method and path, as net/http formats a pattern.
func (d *Declaration) String() string { return d.Method + " " + d.Path }

var wildcard = regexp.MustCompile(`\{\w+\}`)

// PathOf returns the path of a request with one ref for each wildcard. It panics if their numbers
// differ.
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

// ServedByDaemon returns the route with the daemon's handler. It panics unless the daemon serves
// the route.
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

// ServedByRegistry returns the route with the registry's handler. It panics unless the registry
// serves the route.
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

// addPages adds AfterParameter to the query parameters, for each program that returns the
// registry's list.
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
