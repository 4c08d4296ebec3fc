// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/daemon/internal/attach"
	"github.com/volferry/volferry/daemon/internal/audit"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/daemon/internal/volume"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/op"
	"github.com/volferry/volferry/internal/protocol"
)

// program is what this program calls itself.
const program = "volferryd"

// Registry is the part of the registry's API that handlers call themselves. Other requests
// are passed on as they came.
type Registry interface {
	Volume(ctx context.Context, id string) (api.Volume, error)
	EachVolume(ctx context.Context, do func(*api.Volume) error) error
	Instances(ctx context.Context) ([]api.Instance, error)
	Instance(ctx context.Context, id string) (api.Instance, error)
	Attachment(ctx context.Context, id string) (api.Attachment, error)
	Migration(ctx context.Context, id string) (api.Migration, error)
	Migrations(ctx context.Context, volume string, all bool) ([]api.Migration, error)
	ForgetInstance(ctx context.Context, opID, ref string) error
}

// Deps are the parts of the daemon behind the API.
type Deps struct {
	HV          hv.Hypervisor
	Runner      *op.Runner
	Migrations  *migrate.Manager
	Volumes     *volume.Manager
	Attachments *attach.Manager
	Instances   *instance.Manager
	Adopter     *instance.Adopter
	Registry    Registry
	// RegistryProxy passes requests on to the registry.
	RegistryProxy http.Handler
	// RegistryAddress is where the registry is, as an operator gives it to --socket.
	RegistryAddress string
	// CheckRegistry, if not nil, refuses requests that need features which the registry
	// does not have. Peer, if not nil, returns what the registry announced.
	CheckRegistry func(needs []string) error
	Peer          func() (protocol.Announcement, bool)
	// Endpoints, if not nil, returns the URLs of a registry that has several.
	Endpoints func() []client.Endpoint
	Uplink    *uplink.Uplink
	// Audit adds to the registry's trail what is asked for here and done by this host
	// alone.
	Audit *audit.Outbox
	// Callers, if not nil, remembers who asked for the ops of this host.
	Callers *audit.Callers
	Doctor  func(ctx context.Context) []api.Check
	// FixDoctor mends what it can of the faults that Doctor finds.
	FixDoctor func(ctx context.Context) []api.Fix
	// Certificates checks until when the certificates of this host are good; it is nil if
	// the host has none.
	Certificates func() []api.Check
	// ShortOfRoom, if not nil, reports whether guests are about to fill the filesystem of the
	// journal.
	ShortOfRoom func() []api.Check
	// Metrics, if not nil, returns what is wrong with the server of the metrics.
	Metrics func() []api.Check
	Log     *slog.Logger

	HostID   string
	HostName string
	Version  string
	Since    time.Time
}

// Server holds the handlers.
type Server struct {
	Deps
	tasksOnce    sync.Once
	tasksHandler http.Handler
	// opWaits is how many callers wait until an op is over.
	opWaits atomic.Int64
}

// New makes the API of a daemon.
func New(d Deps) *Server { return &Server{Deps: d} }

// logCaller writes down who asks for a change at the socket: root, the group's members and scripts
// are all one at the registry, which knows this host alone. What a change would be is asked without
// making it, and is not written down.
func (s *Server) logCaller(r *http.Request, refused error) {
	who := whoAsks(r.Context())
	if refused != nil {
		s.Log.Warn("a change was asked for and refused", "method", r.Method, "path", r.URL.Path, "who", who, "err", refused)
		return
	}
	// What is named in a path, and deleted, may end like that as well.
	if r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, ":plan") || strings.HasSuffix(r.URL.Path, ":estimate")) {
		return
	}
	if key := r.Header.Get(api.IdempotencyKeyHeader); s.Callers != nil && key != "" {
		s.Callers.Note(key, who)
	}
	s.Log.Info("a change was asked for", "method", r.Method, "path", r.URL.Path, "who", who, "op", r.Header.Get(api.IdempotencyKeyHeader))
}

// whoAsks is the caller at the socket.
func whoAsks(ctx context.Context) string {
	if peer, ok := httpjson.PeerOf(ctx); ok {
		return peer.String()
	}
	return "unknown"
}
