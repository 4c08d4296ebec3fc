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
	// Report reports this host's present state to the registry, if it can.
	Report func(ctx context.Context)
	// Recorded refuses a volume that this host's journal and the registry have at different places
	// (which.Finder), with both places and the remedy.
	Recorded func(ctx context.Context, vol api.Volume) error
	// Audit adds an event to the audit trail. Nil: events are dropped.
	Audit func(api.EventPost)
}

// Registry is the attachments' part of the registry. Every change has an op id and may be
// repeated. Errors are *api.Error; after registry_unavailable the outcome is unknown.
type Registry interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
	Attachment(ctx context.Context, ref string) (api.Attachment, error)
	// Attachments returns the attachments of a volume at an instance; "" is any.
	Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error)
	ReserveAttachment(ctx context.Context, opID string, in api.AttachmentReserve) (api.Attachment, error)
	TransitionAttachment(ctx context.Context, opID, id string, in api.AttachmentTransition) (api.Attachment, error)
	ReleaseAttachment(ctx context.Context, opID, id string, in api.AttachmentRelease) (api.Attachment, error)
}

// Images gives access to this host's image files and devices, by path (image.Storage).
type Images interface {
	// Inspect returns size and kind of the image at a location, image.ErrAbsent for a missing
	// path, and an *api.Error if the image contradicts the location, or has other base images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// InUse describes the holder of an image, or "" if this host sees none: a mount, a device
	// mapper or loop device, swap or, for an RBD image, more clients than ours (may be nil)
	// counts.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Reach returns an *image.ReachError if a process of this user cannot reach the files in a
	// directory.
	Reach(user hv.ProcessUser, dir string) error
	// MayOpen returns an *image.OpenError if a process of this user cannot open an image. No
	// process may have it open.
	MayOpen(user hv.ProcessUser, path string) error
	// Connect drops cached pages of an image.
	Connect(ctx context.Context, path string) error
	// Disconnect is called when the last guest of this host has released the image. It writes all
	// cached pages to stable storage. A missing or broken image is no error.
	Disconnect(ctx context.Context, path string) error
}

// Migrations gives access to this host's migrations (migrate.Manager), since the registry may be
// silent. A migration of a volume attached here is this host's.
type Migrations interface {
	// List returns this host's open migrations, or all.
	List(ctx context.Context, all bool) ([]api.Migration, error)
}

// Known is this host's cache of its attachments, for a silent registry.
type Known interface {
	Known(ctx context.Context, id string) (api.Attachment, bool)
	// KnownAt returns the attachment of a volume at an instance of this host, both by id or name.
	KnownAt(ctx context.Context, volume, instance string) (api.Attachment, bool)
	// KnownInstance returns an instance of this host by id or name.
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
