// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// Ports are the systems that attachments use.
type Ports struct {
	Domains    Domains
	Disks      Disks
	Devices    location.Connector
	Pools      location.PoolVolumes
	Processes  Processes
	Registry   Registry
	Images     Images
	Migrations Migrations
	Known      Known
	Guards     Guards
	Unplugs    *PendingUnplugs
	Claims     *location.Claims
	// Report reports this host's present state to the registry, if possible.
	Report func(ctx context.Context)
	// Recorded refuses a volume if this host's journal and the registry have different locations
	// of it (which.Finder). Its error has both, and the remedy.
	Recorded func(ctx context.Context, vol api.Volume) error
	// Audit adds an event to the audit trail. If it is nil, events are dropped.
	Audit func(api.EventPost)
}

// Registry has the registry's calls for attachments. Every change has an op id and may be
// repeated. Errors are *api.Error; after registry_unavailable the outcome is unknown.
type Registry interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
	Attachment(ctx context.Context, ref string) (api.Attachment, error)
	// Attachments returns the attachments of a volume at an instance. An empty volume or instance
	// stands for any.
	Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error)
	ReserveAttachment(ctx context.Context, opID string, in api.AttachmentReserve) (api.Attachment, error)
	TransitionAttachment(ctx context.Context, opID, id string, in api.AttachmentTransition) (api.Attachment, error)
	ReleaseAttachment(ctx context.Context, opID, id string, in api.AttachmentRelease) (api.Attachment, error)
}

// Images gives access to this host's image files and devices, by path. image.Storage documents the
// calls.
type Images interface {
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	Reach(user hv.ProcessUser, dir string) error
	MayOpen(user hv.ProcessUser, path string) error
	Connect(ctx context.Context, path string) error
	Disconnect(ctx context.Context, path string) error
}

// Migrations lists this host's migrations (migrate.Manager), also while the registry does not
// answer. A migration of a volume attached here is this host's.
type Migrations interface {
	// List returns this host's open migrations or, if all is true, all migrations.
	List(ctx context.Context, all bool) ([]api.Migration, error)
}

// Known is this host's cache of its attachments, for times when the registry does not answer.
type Known interface {
	Known(ctx context.Context, id string) (api.Attachment, bool)
	// KnownAt and KnownInstance accept ids and names.
	KnownAt(ctx context.Context, volume, instance string) (api.Attachment, bool)
	KnownInstance(ctx context.Context, ref string) (api.Instance, bool)
}

// Guards prevents starts of domains by any program (guard.Dir).
type Guards interface {
	Set(domainID, owner, reason string) error
	// Clear removes the owner's guard; other guards stay.
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	Of(domainID string) ([]guard.Guard, error)
}
