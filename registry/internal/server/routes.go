// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/registry/internal/store"
)

// Routes is the whole API in one table.
func (s *Server) Routes() []httpjson.Route {
	const (
		read    = httpjson.Read
		operate = httpjson.Operate
	)
	db := s.Store
	return []httpjson.Route{
		{Method: "GET", Path: "/v1/status", Access: read, Summary: "The registry on one screen", Handler: s.status},
		{Method: "GET", Path: "/v1/version", Access: read, Summary: "The version of the registry", Handler: s.version},
		{Method: "GET", Path: "/v1/openapi.json", Access: read, Summary: "This document", Handler: s.openAPI},

		{Method: "GET", Path: "/v1/hosts", Access: read, Summary: "Every host", Handler: list("hosts", db.Hosts)},
		{Method: "GET", Path: "/v1/hosts/{host}", Access: read, Summary: "One host", Handler: show("host", db.Host)},
		{Method: "POST", Path: "/v1/hosts/{host}/report", Access: operate, Summary: "What a daemon says of its host", Handler: s.report},

		{Method: "GET", Path: "/v1/pools", Access: read, Summary: "The pools of every host", Handler: list("pools", db.Pools)},
		{Method: "GET", Path: "/v1/pools/{pool}", Access: read, Summary: "One pool", Query: []string{"host"}, Handler: s.pool},

		{Method: "GET", Path: "/v1/types", Access: read, Summary: "Every volume type", Handler: list("types", db.Types)},
		{Method: "POST", Path: "/v1/types", Access: operate, Summary: "Make a volume type", Handler: create("type", db.CreateType)},
		{Method: "GET", Path: "/v1/types/{type}", Access: read, Summary: "One volume type", Handler: show("type", db.Type)},
		{Method: "PATCH", Path: "/v1/types/{type}", Access: operate, Summary: "Change a volume type", Handler: change("type", db.UpdateType)},
		{Method: "DELETE", Path: "/v1/types/{type}", Access: operate, Summary: "Remove a volume type", Handler: remove("type", db.DeleteType)},

		{Method: "GET", Path: "/v1/volumes", Access: read, Summary: "Every volume", Handler: list("volumes", everything(db.Volumes))},
		{Method: "POST", Path: "/v1/volumes:register", Access: operate, Summary: "Record a volume", Handler: create("volume", db.RegisterVolume)},
		{Method: "GET", Path: "/v1/volumes/{volume}", Access: read, Summary: "One volume", Handler: show("volume", anything(db.Volume))},
		{Method: "PATCH", Path: "/v1/volumes/{volume}", Access: operate, Summary: "Rename a volume or make it bootable", Handler: change("volume", db.UpdateVolume)},
		{Method: "POST", Path: "/v1/volumes/{volume}/forget", Access: operate, Summary: "Forget a volume whose bytes are gone", Handler: change("volume", s.forgetVolume)},
		{Method: "POST", Path: "/v1/volumes/{volume}/transition", Access: operate, Summary: "Move a volume to another status", Handler: change("volume", db.TransitionVolume)},

		{Method: "GET", Path: "/v1/instances", Access: read, Summary: "Every instance", Handler: list("instances", everything(db.Instances))},
		{Method: "POST", Path: "/v1/instances:register", Access: operate, Summary: "Record an adopted instance with its disks", Handler: create("instance", db.RegisterInstance)},
		{Method: "GET", Path: "/v1/instances/{instance}", Access: read, Summary: "One instance", Handler: show("instance", anything(db.Instance))},
		{Method: "DELETE", Path: "/v1/instances/{instance}", Access: operate, Summary: "Forget an instance; its volumes stay", Handler: remove("instance", db.ForgetInstance)},

		{Method: "GET", Path: "/v1/attachments", Access: read, Summary: "Attachments", Query: []string{"volume", "instance"}, Handler: s.attachments},
		{Method: "GET", Path: "/v1/attachments/{attachment}", Access: read, Summary: "One attachment", Handler: show("attachment", anything(db.Attachment))},

		{Method: "GET", Path: "/v1/migrations", Access: read, Summary: "Open migrations, or all", Query: []string{"volume", "all"}, Handler: s.migrations},
		{Method: "POST", Path: "/v1/migrations:register", Access: operate, Summary: "Lock a volume for a migration and reserve its destination", Handler: create("migration", db.RegisterMigration)},
		{Method: "GET", Path: "/v1/migrations/{migration}", Access: read, Summary: "One migration", Handler: show("migration", anything(db.Migration))},
		{Method: "POST", Path: "/v1/migrations/{migration}/transition", Access: operate, Summary: "Move a migration to another state", Handler: change("migration", db.TransitionMigration)},

		{Method: "GET", Path: "/v1/events", Access: read, Summary: "The audit trail, at most 1000 events, or with follow=1 a stream without end", Query: []string{"since", "follow"}, Handler: s.events},
		{Method: "POST", Path: "/v1/events", Access: operate, Summary: "Add an event to the audit trail", Handler: create("event", db.PostEvent)},
	}
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	return httpjson.Write(w, http.StatusOK, "version", s.Version)
}

// forgetVolume takes a volume out of the registry; its bytes are its host's.
func (s *Server) forgetVolume(ctx context.Context, call store.Call, ref string, _ api.VolumeForget) (api.Volume, error) {
	return s.Store.ForgetVolume(ctx, call, ref)
}
