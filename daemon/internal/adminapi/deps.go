// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/volferry/volferry/daemon/internal/attach"
	"github.com/volferry/volferry/daemon/internal/audit"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/daemon/internal/volume"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/protocol"
)

const program = "volferryd"

// Registry has the registry's calls that handlers make. Other requests are passed on unchanged.
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

// Deps are the parts of the daemon that the API uses.
type Deps struct {
	HV              Hypervisor
	Runner          *op.Runner
	Migrations      *migrate.Manager
	Volumes         *volume.Manager
	Attachments     *attach.Manager
	Instances       *instance.Manager
	Adopter         *instance.Adopter
	Registry        Registry
	RegistryProxy   http.Handler
	RegistryAddress string
	// CheckRegistry refuses requests that need features which the registry lacks. Peer returns the
	// registry's announcement. Either may be nil.
	CheckRegistry func(needs []string) error
	Peer          func() (protocol.Announcement, bool)
	// Endpoints, if not nil, returns the URLs of a registry that has several.
	Endpoints func() []client.Endpoint
	Uplink    *uplink.Uplink
	// Audit adds requests that the registry does not see to its trail.
	Audit *audit.Outbox
	// Callers, if not nil, stores who began the ops of this host.
	Callers *audit.Callers
	Doctor  func(ctx context.Context) []api.Check
	// FixDoctor repairs faults that Doctor finds, as far as it can.
	FixDoctor func(ctx context.Context) []api.Fix
	// Certificates checks the expiry of this host's certificates. It is nil if the host has none.
	Certificates func() []api.Check
	// ShortOfRoom, if not nil, warns when guests are about to fill the filesystem of the journal.
	ShortOfRoom func() []api.Check
	// Metrics, if not nil, returns the faults of the metrics server.
	Metrics func() []api.Check
	Log     *slog.Logger

	HostID   string
	HostName string
	Version  string
	Since    time.Time
}
