// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// The accesses of the table: of people, and of hosts.
const (
	read    = httpjson.Read
	operate = httpjson.Operate
	fence   = httpjson.Fence
	local   = httpjson.Local

	never = httpjson.HostNever
	own   = httpjson.HostOwn
	anyOf = httpjson.HostAny
)

// Routes is the whole API in one table.
func (s *Server) Routes() []httpjson.Route {
	return slices.Concat(
		s.aboutRoutes(), s.hostRoutes(), s.poolRoutes(), s.typeRoutes(), s.volumeRoutes(), s.attachmentRoutes(),
		s.instanceRoutes(), s.migrationRoutes(), s.drainRoutes(), s.opRoutes(), s.eventRoutes(),
	)
}

// out is an answer with one noun.
func out(noun string, value any) []httpjson.Noun { return []httpjson.Noun{{Name: noun, Value: value}} }

// accepted is the answer of what lasts.
func accepted(noun string, value any) []httpjson.Noun {
	return []httpjson.Noun{{Name: "op", Value: api.Op{}}, {Name: noun, Value: value}}
}

func (s *Server) aboutRoutes() []httpjson.Route {
	return []httpjson.Route{
		{Method: http.MethodGet, Path: "/v1/status", Access: read, Hosts: anyOf, Summary: "The registry on one screen", Out: out("status", api.Status{}), Handler: s.status},
		{Method: http.MethodGet, Path: "/v1/version", Access: read, Hosts: anyOf, Summary: "The version of the registry", Out: out("version", ""), Handler: s.version},
		{Method: http.MethodGet, Path: "/v1/openapi.json", Access: read, Hosts: anyOf, Summary: "This document", Handler: s.openAPI},
	}
}

func (s *Server) hostRoutes() []httpjson.Route {
	host := out("host", api.Host{})
	return []httpjson.Route{
		{Method: http.MethodGet, Path: "/v1/hosts", Access: read, Hosts: own, Summary: "Every host", Out: out("hosts", []api.Host{}), Handler: list("hosts", s.hosts)},
		{Method: http.MethodGet, Path: "/v1/hosts/{host}", Access: read, Hosts: own, Summary: "One host", Out: host, Handler: show("host", s.host)},
		{Method: http.MethodPost, Path: "/v1/hosts/{host}/report", Access: local, Hosts: own, Summary: "What a daemon says of its host", In: api.HostReport{}, Out: host, Handler: s.report},
		{Method: http.MethodPost, Path: "/v1/hosts/{host}/fence", Access: fence, Hosts: never, Summary: "Take an operator's word that a host cannot touch any volume any more", In: api.HostFence{}, Out: host, Handler: drastic(s, "host", s.Store.FenceHost)},
		{Method: http.MethodDelete, Path: "/v1/hosts/{host}", Access: fence, Hosts: never, Summary: "Forget a fenced host that is gone for good and has nothing left; with volumes=1 those in its own pools too", Query: []string{"volumes"}, Out: host, Handler: s.forgetHost},
		{Method: http.MethodPost, Path: "/v1/hosts/{host}/rejoin", Access: local, Hosts: own, Summary: "A fenced host has let go of what it lost", In: api.HostRejoin{}, Out: host, Handler: s.rejoin},
		{Method: http.MethodGet, Path: "/v1/hosts/{host}/tasks", Access: local, Hosts: own, Summary: "What a host is asked to do, by long poll; a session that is new gets all that has no answer", Query: []string{"session", "wait_seconds"}, Out: out("tasks", []api.Task{}), Handler: s.tasks},
		{Method: http.MethodPost, Path: "/v1/hosts/{host}/tasks/{task}/answer", Access: local, Hosts: own, Summary: "What the host's API answered to a task; the first answer stands", In: api.TaskAnswer{}, Out: out("task", api.Task{}), Handler: s.answer},
	}
}

func (s *Server) poolRoutes() []httpjson.Route {
	return []httpjson.Route{
		{Method: http.MethodGet, Path: "/v1/pools", Access: read, Hosts: own, Summary: "The pools of every host", Out: out("pools", []api.Pool{}), Handler: list("pools", s.pools)},
		{Method: http.MethodGet, Path: "/v1/pools/{pool}", Access: read, Hosts: own, Summary: "One pool", Query: []string{hostParameter}, Out: out("pool", api.Pool{}), Handler: s.pool},
		{Method: http.MethodPost, Path: "/v1/pools/{pool}/drain", Access: operate, Hosts: never, Summary: "Move every volume of a pool, on every host, to another pool", In: api.PoolDrain{}, Out: out("drain", api.Drain{}), Handler: s.startDrain},
	}
}

func (s *Server) typeRoutes() []httpjson.Route {
	db, one := s.Store, out("type", api.VolumeType{})
	return []httpjson.Route{
		{Method: http.MethodGet, Path: "/v1/types", Access: read, Hosts: anyOf, Summary: "Every volume type", Out: out("types", []api.VolumeType{}), Handler: list("types", listed(db.Types))},
		{Method: http.MethodPost, Path: "/v1/types", Access: operate, Hosts: never, Summary: "Make a volume type", In: api.VolumeTypeCreate{}, Out: one, Handler: create("type", db.CreateType)},
		{Method: http.MethodGet, Path: "/v1/types/{type}", Access: read, Hosts: anyOf, Summary: "One volume type", Out: one, Handler: show("type", shown(db.Type))},
		{Method: http.MethodPatch, Path: "/v1/types/{type}", Access: operate, Hosts: never, Summary: "Change a volume type", In: api.VolumeTypeUpdate{}, Out: one, Handler: change("type", db.UpdateType)},
		{Method: http.MethodDelete, Path: "/v1/types/{type}", Access: operate, Hosts: never, Summary: "Remove a volume type", Out: one, Handler: remove("type", db.DeleteType)},

		{Method: http.MethodGet, Path: "/v1/policies", Access: read, Hosts: anyOf, Summary: "Every policy", Out: out("policies", []api.Policy{}), Handler: list("policies", listed(db.Policies))},
		{Method: http.MethodPut, Path: "/v1/policies/{policy}", Access: operate, Hosts: never, Summary: "Turn a policy on or off", In: api.PolicyUpdate{}, Out: out("policy", api.Policy{}), Handler: change("policy", db.SetPolicy)},
	}
}

func (s *Server) eventRoutes() []httpjson.Route {
	return []httpjson.Route{
		{Method: http.MethodGet, Path: "/v1/events", Access: read, Hosts: never, Summary: "The audit trail, at most 1000 events and about 1 MiB (an empty list is its end), or with follow=1 a stream without end", Query: []string{"since", "follow"}, Out: out("events", []api.Event{}), Handler: s.events},
		{Method: http.MethodPost, Path: "/v1/events", Access: local, Hosts: own, Summary: "A daemon adds an event to the audit trail", In: api.EventPost{}, Out: out("event", api.Event{}), Handler: create("event", s.Store.PostEvent)},
	}
}
