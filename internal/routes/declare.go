// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"net/http"
	"reflect"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

type option func(*Declaration)

func daemon(part Part, query ...string) option {
	return func(d *Declaration) { d.Daemon = &AtDaemon{Part: part, Query: query} }
}

// registry declares that the registry serves the route, with these rights of hosts, and with query
// parameters that only the registry accepts.
func registry(hosts httpjson.HostAccess, query ...string) option {
	return func(d *Declaration) { d.Registry = &AtRegistry{Hosts: hosts, Query: query} }
}

const (
	never = httpjson.HostNever
	own   = httpjson.HostOwn
	anyOf = httpjson.HostAny
)

func query(names ...string) option { return func(d *Declaration) { d.query = names } }

// needs declares a higher access than the default of the method.
func needs(a httpjson.Access) option { return func(d *Declaration) { d.Access = a } }

func also[T any](noun string) option {
	var none T
	return func(d *Declaration) { d.out = append(d.out, httpjson.Noun{Name: noun, Value: none}) }
}

// paged declares that the registry sends the list in pages.
func paged[T any](order func(a, b T) int) option {
	return func(d *Declaration) { d.order = order }
}

// waitParameter is how long a host may wait for the end of the op before it answers, such as
// "30s". The registry does not accept it.
const waitParameter = "wait"

// begins declares that the answer also has the op that was begun.
var begins = also[api.Op]("op")

func declare[In, Out any](access httpjson.Access, method, path, summary string, options []option) Route[In, Out] {
	var (
		in  In
		out Out
	)
	noun := nounOf(reflect.TypeFor[Out]())
	d := &Declaration{Method: method, Path: path, Noun: noun, Access: access, Summary: summary}
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
		d.Daemon.Query = append(d.Daemon.Query, d.query...)
	}
	if d.Registry != nil {
		d.Registry.Query = append(d.Registry.Query, d.query...)
	}
	if d.order != nil {
		d.addPages()
	}
	all = append(all, d)
	return Route[In, Out]{Declaration: d}
}

func get[Out any](path, summary string, options ...option) Route[None, Out] {
	return declare[None, Out](httpjson.Read, http.MethodGet, path, summary, options)
}

func post[In, Out any](path, summary string, options ...option) Route[In, Out] {
	return declare[In, Out](httpjson.Operate, http.MethodPost, path, summary, options)
}

func put[In, Out any](path, summary string, options ...option) Route[In, Out] {
	return declare[In, Out](httpjson.Operate, http.MethodPut, path, summary, options)
}

func patch[In, Out any](path, summary string, options ...option) Route[In, Out] {
	return declare[In, Out](httpjson.Operate, http.MethodPatch, path, summary, options)
}

func remove[Out any](path, summary string, options ...option) Route[None, Out] {
	return declare[None, Out](httpjson.Operate, http.MethodDelete, path, summary, options)
}

func report[In, Out any](path, summary string, options ...option) Route[In, Out] {
	return declare[In, Out](httpjson.Local, http.MethodPost, path, summary, append([]option{registry(own)}, options...))
}

func stream(path, summary string, options ...option) Stream {
	s := get[api.Event](path, summary+" (NDJSON)", append(options, query("since"))...)
	s.Noun, s.out, s.lines = "", nil, api.Event{}
	return s
}
