// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/daemon/internal/volume"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// Registry is what the handlers ask of the registry themselves; the rest is
// passed on as it came.
type Registry interface {
	Volume(ctx context.Context, id string) (api.Volume, error)
	Volumes(ctx context.Context) ([]api.Volume, error)
	Instances(ctx context.Context) ([]api.Instance, error)
	Instance(ctx context.Context, id string) (api.Instance, error)
	Attachment(ctx context.Context, id string) (api.Attachment, error)
	ForgetInstance(ctx context.Context, opID, ref string) error
}

// Deps are the parts of the daemon that the API speaks for.
type Deps struct {
	HV         hv.Hypervisor
	Runner     *op.Runner
	Migrations *migrate.Manager
	Volumes    *volume.Manager
	Adopter    *instance.Adopter
	Registry   Registry
	// RegistryProxy answers what is the registry's to answer.
	RegistryProxy http.Handler
	Uplink        *uplink.Uplink
	Doctor        func(ctx context.Context) []api.Check
	Log           *slog.Logger

	HostID   string
	HostName string
	Version  string
	Since    time.Time
}

// Server holds the handlers.
type Server struct{ Deps }

// New makes the API of a daemon.
func New(d Deps) *Server { return &Server{d} }

// Handler serves the API to those whom the authorizer lets in.
func (s *Server) Handler(authorize httpjson.Authorizer) http.Handler {
	return httpjson.NewHandler(httpjson.Config{Routes: s.Routes(), Authorize: authorize, Log: s.Log})
}

// Routes is the API: every path, what it asks of the caller, and who answers.
func (s *Server) Routes() []httpjson.Route {
	const read, operate = httpjson.Read, httpjson.Operate
	proxied := s.proxied
	return []httpjson.Route{
		{Method: "GET", Path: "/v1/status", Access: read, Summary: "how this daemon and what it leans on are", Handler: s.status},
		{Method: "GET", Path: "/v1/doctor", Access: read, Summary: "what on this host would stop a migration", Handler: s.doctor},
		{Method: "GET", Path: "/v1/version", Access: read, Summary: "the version of this daemon", Handler: s.version},
		{Method: "GET", Path: "/v1/openapi.json", Access: read, Summary: "this API as an OpenAPI document", Handler: s.openAPI},

		{Method: "GET", Path: "/v1/hosts", Access: read, Summary: "list the hosts", Handler: proxied},
		{Method: "GET", Path: "/v1/hosts/{host}", Access: read, Summary: "show a host", Handler: proxied},
		{Method: "GET", Path: "/v1/pools", Access: read, Summary: "list the storage pools", Handler: s.fresh(proxied)},
		{Method: "GET", Path: "/v1/pools/{pool}", Access: read, Summary: "show a storage pool", Handler: s.fresh(proxied)},
		{Method: "GET", Path: "/v1/types", Access: read, Summary: "list the volume types", Handler: proxied},
		{Method: "POST", Path: "/v1/types", Access: operate, Summary: "create a volume type", Handler: proxied},
		{Method: "GET", Path: "/v1/types/{type}", Access: read, Summary: "show a volume type", Handler: proxied},
		{Method: "PATCH", Path: "/v1/types/{type}", Access: operate, Summary: "change a volume type", Handler: proxied},
		{Method: "DELETE", Path: "/v1/types/{type}", Access: operate, Summary: "delete a volume type", Handler: proxied},

		{Method: "GET", Path: "/v1/volumes", Access: read, Summary: "list the volumes", Handler: proxied},
		{Method: "POST", Path: "/v1/volumes", Access: operate, Summary: "create a volume", Handler: s.createVolume},
		{Method: "POST", Path: "/v1/volumes:adopt", Access: operate, Summary: "register an image that exists as a volume", Handler: s.adoptVolume},
		{Method: "GET", Path: "/v1/volumes/{volume}", Access: read, Summary: "show a volume", Handler: proxied},
		{Method: "PATCH", Path: "/v1/volumes/{volume}", Access: operate, Summary: "change a volume", Handler: proxied},
		{Method: "DELETE", Path: "/v1/volumes/{volume}", Access: operate, Summary: "delete a volume and its bytes", Handler: s.deleteVolume},
		{Method: "GET", Path: "/v1/volumes/{volume}/which", Access: read, Summary: "say which copy of a volume is the good one", Handler: s.which},
		{Method: "POST", Path: "/v1/volumes/{volume}/migrate", Access: operate, Summary: "move a volume: start, copy and complete in one", Handler: s.migrateVolume},

		{Method: "GET", Path: "/v1/attachments", Access: read, Summary: "list the attachments", Handler: proxied},
		{Method: "GET", Path: "/v1/attachments/{attachment}", Access: read, Summary: "show an attachment", Handler: proxied},
		{Method: "POST", Path: "/v1/attachments/{attachment}/migration:start", Access: operate, Summary: "freeze the volume under an overlay", Handler: s.startMigration},
		{Method: "POST", Path: "/v1/attachments/{attachment}/migration:copy", Access: operate, Summary: "copy src to dst", Handler: s.byAttachment(s.Migrations.Copy)},
		{Method: "POST", Path: "/v1/attachments/{attachment}/migration:complete", Access: operate, Summary: "put the instance onto dst", Handler: s.completeByAttachment},
		{Method: "POST", Path: "/v1/attachments/{attachment}/migration:cancel", Access: operate, Summary: "bring the instance back to src", Handler: s.byAttachment(s.Migrations.Cancel)},

		{Method: "GET", Path: "/v1/instances", Access: read, Summary: "list the instances", Handler: s.fresh(proxied)},
		{Method: "POST", Path: "/v1/instances:adopt", Access: operate, Summary: "take over the disks of domains that exist", Handler: s.adoptInstance},
		{Method: "GET", Path: "/v1/instances/{instance}", Access: read, Summary: "show an instance", Handler: s.fresh(proxied)},
		{Method: "DELETE", Path: "/v1/instances/{instance}", Access: operate, Summary: "forget an instance; its domain and images stay", Handler: s.forgetInstance},

		{Method: "GET", Path: "/v1/migrations", Access: read, Summary: "list the migrations of this host", Handler: s.listMigrations},
		{Method: "GET", Path: "/v1/migrations/{migration}", Access: read, Summary: "show a migration", Handler: s.showMigration},
		{Method: "PATCH", Path: "/v1/migrations/{migration}", Access: operate, Summary: "change a migration while it runs", Handler: s.updateMigration},
		{Method: "GET", Path: "/v1/migrations/{migration}/events", Access: read, Summary: "follow a migration (NDJSON)", Handler: s.watchMigration},
		{Method: "POST", Path: "/v1/migrations/{migration}/copy", Access: operate, Summary: "copy src to dst", Handler: s.byMigration(s.Migrations.Copy)},
		{Method: "POST", Path: "/v1/migrations/{migration}/complete", Access: operate, Summary: "end a migration at dst", Handler: s.byMigration(s.Migrations.Complete)},
		{Method: "POST", Path: "/v1/migrations/{migration}/cancel", Access: operate, Summary: "end a migration at src", Handler: s.byMigration(s.Migrations.Cancel)},

		{Method: "GET", Path: "/v1/ops/{op}", Access: read, Summary: "show an operation", Handler: s.showOp},
		{Method: "GET", Path: "/v1/ops/{op}/events", Access: read, Summary: "follow an operation (NDJSON)", Handler: s.watchOp},
		{Method: "GET", Path: "/v1/events", Access: read, Summary: "the audit trail", Handler: proxied},
	}
}
