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

// Ports are the systems that an attachment works on.
type Ports struct {
	HV         hv.Hypervisor
	Registry   Registry
	Images     Images
	Migrations Migrations
	Known      Known
	Guards     Guards
	Unplugs    *PendingUnplugs
	// Claims knows which images belong to somebody.
	Claims *location.Claims
	// Report reports the present state of this host to the registry, if it can.
	Report func(ctx context.Context)
	// Audit adds an event to the audit trail. Nil: events are dropped.
	Audit func(api.EventPost)
}

// Registry is what attachments need of the registry. Every mutation carries an
// op id and may be repeated. Errors are *api.Error; the code
// registry_unavailable means that the outcome is unknown.
type Registry interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
	Attachment(ctx context.Context, ref string) (api.Attachment, error)
	// Attachments returns the attachments of a volume at an instance. An empty reference
	// stands for every volume, or every instance.
	Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error)
	ReserveAttachment(ctx context.Context, opID string, in api.AttachmentReserve) (api.Attachment, error)
	TransitionAttachment(ctx context.Context, opID, id string, in api.AttachmentTransition) (api.Attachment, error)
	ReleaseAttachment(ctx context.Context, opID, id string, in api.AttachmentRelease) (api.Attachment, error)
}

// Images are the image files and devices of this host, by path
// (image.Storage).
type Images interface {
	// Inspect reads size and kind of the image at a location. It returns image.ErrAbsent if
	// there is nothing at its path, and an *api.Error if the image is not as the location
	// says, or has other base images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// InUse says in words who holds the image: a mount, a device mapper or loop device,
	// swap, or, of an RBD image, clients besides those that ours counts, which may be nil. It
	// returns "" if nobody does as far as this host can see.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Reach returns nil if a process of this user can get to the files in a directory, and
	// an *image.ReachError if not.
	Reach(user hv.ProcessUser, dir string) error
	// MayOpen returns nil if a process of this user can open an image that nobody has open,
	// and an *image.OpenError if not.
	MayOpen(user hv.ProcessUser, path string) error
	// Connect makes the image at path ready for a guest of this host: what this host has
	// cached of it is not read again.
	Connect(ctx context.Context, path string) error
	// Disconnect is called when the last guest of this host has let go of the image. When
	// it returns, everything that this host has in memory of the image is on stable
	// storage. An image that is gone or broken is no error.
	Disconnect(ctx context.Context, path string) error
}

// Migrations are the migrations of this host (migrate.Manager). They are asked in addition
// to the registry, which may be away: a migration of a volume that is attached here always
// belongs to this host.
type Migrations interface {
	// List returns the migrations of this host: the open ones, or all.
	List(ctx context.Context, all bool) ([]api.Migration, error)
	// CheckVolumeRecorded refuses a volume that the journal of this host has elsewhere than the
	// registry, since a move that the registry does not know. Its error says what each witness has,
	// and what can be done.
	CheckVolumeRecorded(ctx context.Context, vol api.Volume) error
}

// Known is what this host remembers of its own attachments while the registry is away.
type Known interface {
	// Known finds an attachment of this host by its id.
	Known(ctx context.Context, id string) (api.Attachment, bool)
	// KnownAt finds the attachment of a volume at an instance of this host. Both may be ids
	// or names.
	KnownAt(ctx context.Context, volume, instance string) (api.Attachment, bool)
	// KnownInstance finds an instance of this host by id or name.
	KnownInstance(ctx context.Context, ref string) (api.Instance, bool)
}

// Guards keep a domain from being started, whoever tries (guard.Dir).
type Guards interface {
	Set(domainID, owner, reason string) error
	// Clear removes the owner's guard; other guards stay.
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	Of(domainID string) ([]guard.Guard, error)
}
