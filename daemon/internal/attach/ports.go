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

// Ports are the systems that the ops of attachments use.
type Ports struct {
	HV         Hypervisor
	Registry   Registry
	Images     Images
	Migrations Migrations
	Known      Known
	Guards     Guards
	Unplugs    *PendingUnplugs
	// Claims finds the users of images.
	Claims *location.Claims
	// Report reports the present state of this host to the registry, if it can.
	Report func(ctx context.Context)
	// Recorded refuses a volume if this host's journal and the registry disagree about its
	// location, because of a move that the registry does not know (which.Finder). The error has
	// both locations, and the remedy.
	Recorded func(ctx context.Context, vol api.Volume) error
	// Audit adds an event to the audit trail. If it is nil, events are dropped.
	Audit func(api.EventPost)
}

// Registry is the part of the registry that attachments need. Every change has an op id and may be
// repeated. Errors are *api.Error; after registry_unavailable the outcome is unknown.
type Registry interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
	Attachment(ctx context.Context, ref string) (api.Attachment, error)
	// Attachments returns the attachments of a volume at an instance. An empty reference means all.
	Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error)
	ReserveAttachment(ctx context.Context, opID string, in api.AttachmentReserve) (api.Attachment, error)
	TransitionAttachment(ctx context.Context, opID, id string, in api.AttachmentTransition) (api.Attachment, error)
	ReleaseAttachment(ctx context.Context, opID, id string, in api.AttachmentRelease) (api.Attachment, error)
}

// Images gives access to the image files and devices of this host, by path (image.Storage).
type Images interface {
	// Inspect returns size and kind of the image at a location. It returns image.ErrAbsent for a
	// missing path, and an *api.Error if the image contradicts the location, or has other base
	// images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// InUse describes the holder of an image: a mount, a device mapper or loop device, swap or, for
	// an RBD image, more clients than ours counts; ours may be nil. It returns "" if this host sees
	// none.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Reach returns nil if a process of this user can reach the files in a directory, otherwise an
	// *image.ReachError.
	Reach(user hv.ProcessUser, dir string) error
	// MayOpen returns nil if a process of this user can open an image that no process has open,
	// otherwise an *image.OpenError.
	MayOpen(user hv.ProcessUser, path string) error
	// Connect prepares the image at path for a guest of this host: it drops cached pages of the
	// image.
	Connect(ctx context.Context, path string) error
	// Disconnect is called when the last guest of this host has released the image. It writes all
	// cached pages of the image to stable storage. A missing or broken image is no error.
	Disconnect(ctx context.Context, path string) error
}

// Migrations gives access to the migrations of this host (migrate.Manager), in addition to the
// registry, which may not answer. A migration of a volume attached on this host belongs to this
// host.
type Migrations interface {
	// List returns the open migrations of this host, or all of them.
	List(ctx context.Context, all bool) ([]api.Migration, error)
}

// Known is this host's cache of its own attachments, used while the registry does not answer.
type Known interface {
	// Known returns an attachment of this host by its id.
	Known(ctx context.Context, id string) (api.Attachment, bool)
	// KnownAt returns the attachment of a volume at an instance of this host. Both may be ids or
	// names.
	KnownAt(ctx context.Context, volume, instance string) (api.Attachment, bool)
	// KnownInstance returns an instance of this host by id or name.
	KnownInstance(ctx context.Context, ref string) (api.Instance, bool)
}

// Guards keeps domains from being started by any program (guard.Dir).
type Guards interface {
	Set(domainID, owner, reason string) error
	// Clear removes the owner's guard; other guards stay.
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	Of(domainID string) ([]guard.Guard, error)
}
