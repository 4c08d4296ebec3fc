// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// Ports are the systems that instances use.
type Ports struct {
	Domains      Domains
	Definitions  Definitions
	Devices      location.Connector
	Power        Power
	Memory       hv.Memory
	Registry     Site
	Guards       GuardKeeper
	Locations    Locations
	Images       Images
	Migrations   Migrations
	MovingGuests MovingGuests
	Parts        Parts
	Known        Known
	// Recorded refuses an action that relies on the locations of the instance's volumes, if this
	// host's journal contradicts the registry about one of them (which.Finder). Its error has both
	// locations, and the remedy.
	Recorded func(ctx context.Context, instanceID string) error
	// Report reports now, and returns when the registry has answered or cannot be reached; a lost
	// report is repeated later. Its error is the hypervisor's if the instances' state is unknown.
	Report func(ctx context.Context) error
}

// Site is the instances' part of the registry. Every change has an op id and may be repeated.
// Errors are *api.Error; after registry_unavailable the outcome is unknown.
type Site interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
	// Attachments returns the attachments of a volume at an instance; "" is any.
	Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error)
	TransitionInstance(ctx context.Context, opID, ref string, in api.InstanceTransition) (api.ShelvedInstance, error)
	// PermitPause asks whether a move's guest may be suspended, restored or resumed now. Each
	// question needs a new op id.
	PermitPause(ctx context.Context, opID, migration string, in api.PausePermit) (api.Migration, error)
}

// GuardKeeper prevents starts of domains (guard.Dir).
type GuardKeeper interface {
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	Of(domainID string) ([]guard.Guard, error)
	// IssueStartToken lets a start of a definition with the returned text through the owner's
	// guard, until RevokeStartToken.
	IssueStartToken(domainID, owner string) (string, error)
	RevokeStartToken(domainID string) error
	// HookKnowsStartTokens returns nil if no hook refuses a start with a token.
	HookKnowsStartTokens() error
	// Enforced returns nil if libvirt runs the guard hook before it starts a domain, otherwise the
	// reason.
	Enforced() error
}

// Locations gives access to this host's images of volumes (attach.Manager).
type Locations interface {
	// Connect prepares an attachment's location for a future domain of this host: it checks pool,
	// image, size and users like an attach, and returns the chain. Errors are typed for the
	// runner. It may be repeated.
	Connect(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error)
	// Chain makes the checks of Connect and returns the chain. It changes nothing.
	Chain(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error)
	// CheckLocation refuses a registry's location that no volume of this host may have.
	// CheckImages refuses a link, and a path that is no longer an image. Errors are typed for the
	// runner.
	CheckLocation(ctx context.Context, l api.Location, verdict string) error
	CheckImages(l api.Location) error
	// Disconnect ends the use of the location, unless another domain or attachment needs it.
	Disconnect(ctx context.Context, vol api.Volume, att api.Attachment) error
}

// Images gives access to images, and to the directory of save images (image.Storage).
type Images interface {
	// Inspect returns size and kind of the image at a location, image.ErrAbsent for a missing
	// path, and an *api.Error if the image contradicts the location, or has other base images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// Fingerprint distinguishes an image from a later image at the same path, also after a reboot.
	// It returns image.ErrAbsent for a missing path.
	Fingerprint(ctx context.Context, path string) (string, error)
	// InUse describes the holder of an image, or "" if this host sees none: a mount, a device
	// mapper or loop device, swap or, for an RBD image, more clients than ours (may be nil)
	// counts.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Connect drops cached pages of an image for a guest of this host.
	Connect(ctx context.Context, path string) error
	// Disconnect writes this host's cached pages of an image to stable storage.
	Disconnect(ctx context.Context, path string) error
	// Flush writes this host's dirty pages of a file to stable storage. Disconnect and Flush
	// return an *image.NotStoredError, once, if a page cannot be stored.
	Flush(ctx context.Context, path string) error
	// FreeBytes returns by how much a file in dir may grow.
	FreeBytes(dir string) (int64, error)
	// InMemory reports whether the content of dir is lost at a reboot.
	InMemory(dir string) (bool, error)
}

// Migrations has the migrations of this host (migrate.Manager).
type Migrations interface {
	// List returns this host's open migrations, or all.
	List(ctx context.Context, all bool) ([]api.Migration, error)
}

// Parts does this host's parts of the moves that the registry leads (parts.Parts).
type Parts interface {
	// CheckPaused refuses a move with all guests paused for reasons against any move of the
	// volume: its image, its disk in this instance, or other users on this host. beside has the
	// ids of the volume's instances in the registry. It changes nothing.
	CheckPaused(ctx context.Context, vol api.Volume, att api.Attachment, beside []string) error
	// StoodStill refuses to save an instance that has written to its volume after the last read of
	// its writes, in a move while all guests write. Call it right before the guest's process ends.
	StoodStill(ctx context.Context, migrationID, instanceID string) error
}

// MovingGuests has the guests with migrations (monitor.Monitor).
type MovingGuests interface {
	// Switching reports whether a migration may have paused the instance.
	Switching(instanceID string) bool
	// MayStart refuses the start of an instance with possibly wrong chains, with reason and
	// remedy.
	MayStart(ctx context.Context, instanceID string) error
	// Misnamed returns the disks of an instance that is off that lack a migration's required
	// overlay in the definition. It returns an error if naming the overlay is not safe.
	Misnamed(ctx context.Context, instanceID string, srcUnwritten bool) ([]hv.NamedChain, error)
	// Standing reports whether an op of the instance's migration waits for the operator.
	Standing(ctx context.Context, instanceID string) (bool, error)
	// NameStanding makes such an instance's definition name the present image of the migration's
	// disk, or returns an error, typed for the runner, if that image is unknown.
	NameStanding(ctx context.Context, instanceID string) error
}

// Known is this host's cache of the registry, for a silent registry.
type Known interface {
	// KnownInstance finds this host's instance by id, name or the beginning of its id.
	KnownInstance(ctx context.Context, ref string) (api.Instance, bool)
}
