// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

// Ports are the systems that the ops of instances work on.
type Ports struct {
	HV         hv.Hypervisor
	Registry   Site
	Guards     GuardKeeper
	Locations  Locations
	Images     Images
	Migrations Migrations
	Known      Known
	// Report makes a report to the registry now, and returns when the registry has answered
	// or cannot be reached; a report that it did not get is repeated anyway. The error is
	// the hypervisor's, if it did not say how the instances are.
	Report func(ctx context.Context) error
}

// Site is the part of the registry that the ops of instances need. Every change has an op
// id and may be repeated. Errors are *api.Error; the code registry_unavailable means that
// the outcome is unknown.
type Site interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
	// Attachments returns the attachments of a volume at an instance. An empty reference
	// stands for every volume, or every instance.
	Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error)
	TransitionInstance(ctx context.Context, opID, ref string, in api.InstanceTransition) (api.ShelvedInstance, error)
	// PermitPause asks whether a guest of a move with all guests paused may be suspended,
	// restored or resumed now. Each question has a new op id.
	PermitPause(ctx context.Context, opID, migration string, in api.PausePermit) (api.Migration, error)
}

// GuardKeeper keeps domains from being started (Guards).
type GuardKeeper interface {
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	Of(domainID string) ([]guard.Guard, error)
	// IssueStartToken lets one start through the owner's guard: a start whose definition
	// contains the returned text. It holds until RevokeStartToken.
	IssueStartToken(domainID, owner string) (string, error)
	RevokeStartToken(domainID string) error
	// HookKnowsStartTokens returns nil if no hook refuses a start with a token.
	HookKnowsStartTokens() error
	// Enforced returns nil if libvirt calls the guard hook before it starts a domain, and
	// an error that says why not.
	Enforced() error
}

// Locations are the images of volumes on this host (attach.Manager).
type Locations interface {
	// Connect makes the location of an attachment ready for a domain of this host that does
	// not exist yet: it checks pool, image, size and users as an attach does, and returns
	// the chain. Its errors are typed for the runner. It may be repeated.
	Connect(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error)
	// Chain checks like Connect and returns the chain, and changes nothing.
	Chain(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error)
	// CheckLocation refuses a location that the registry has said and that no volume of this host
	// may have, and CheckImages an image that is no image by now, or is a link. Their errors are
	// typed for the runner.
	CheckLocation(ctx context.Context, l api.Location, verdict string) error
	CheckImages(l api.Location) error
	// Disconnect ends the use of the location on this host, unless another domain
	// or attachment needs it.
	Disconnect(ctx context.Context, vol api.Volume, att api.Attachment) error
}

// Images are the images of volumes, and the directory of save images, on this host
// (image.Storage).
type Images interface {
	// Inspect reads size and kind of the image at a location. It returns image.ErrAbsent if
	// there is nothing at its path, and an *api.Error if the image is not as the location
	// says, or has other base images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// Fingerprint tells an image from a later image at the same path, also after a reboot. It
	// returns image.ErrAbsent if there is nothing.
	Fingerprint(ctx context.Context, path string) (string, error)
	// InUse says in words who holds the image: a mount, a device mapper or loop device,
	// swap, or, of an RBD image, clients besides those that ours counts, which may be nil. It
	// returns "" if nobody does as far as this host can see.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Connect makes the image at path ready for a guest of this host: it drops what
	// this host has cached of it.
	Connect(ctx context.Context, path string) error
	// Disconnect writes what this host has cached of an image to stable storage.
	Disconnect(ctx context.Context, path string) error
	// Flush puts what this host has in memory of a file on stable storage. Both return an
	// *image.NotStoredError, once, if that cannot be stored.
	Flush(ctx context.Context, path string) error
	// FreeBytes returns how much a file in dir may still grow.
	FreeBytes(dir string) (int64, error)
	// InMemory reports whether what is in dir is gone after a reboot.
	InMemory(dir string) (bool, error)
}

// Migrations are the migrations of this host (migrate.Manager).
type Migrations interface {
	// List returns the migrations of this host: the open ones, or all.
	List(ctx context.Context, all bool) ([]api.Migration, error)
	// Switching reports whether a migration may have the instance paused now.
	Switching(instanceID string) bool
	// MayStart refuses the start of an instance if it is unknown whether its disks have the
	// right chains. Its error says why, and what can be done.
	MayStart(ctx context.Context, instanceID string) error
	// CheckRecorded refuses what goes by the registry's word of where the volumes of an instance
	// are, if the journal of this host has one of them elsewhere since a move that the registry
	// does not know. Its error says what each witness has, and what can be done.
	CheckRecorded(ctx context.Context, instanceID string) error
	// Misnamed returns the disks of an instance that is off whose definition is to name the
	// overlay of a migration, and does not. It is an error if that is not safe.
	Misnamed(ctx context.Context, instanceID string, srcUnwritten bool) ([]hv.NamedChain, error)
	// Standing reports whether an operation of a migration of the instance waits for the operator.
	Standing(ctx context.Context, instanceID string) (bool, error)
	// NameStanding has the definition of such an instance name the image where the disk of that
	// migration is. It is an error if nobody can tell which that is. Its errors are typed for the
	// runner.
	NameStanding(ctx context.Context, instanceID string) error
	// CheckPaused refuses a move with all guests paused for a volume that could not be
	// moved in another way either: because of its image, its disk in this instance, or its
	// other users on this host. Beside are the ids of the instances that have it by the
	// registry. It changes nothing.
	CheckPaused(ctx context.Context, vol api.Volume, att api.Attachment, beside []string) error
	// StoodStill refuses to save an instance that has written to its volume since the last of
	// that was read, in a move while all guests write. It is called right before its process
	// ends.
	StoodStill(ctx context.Context, migrationID, instanceID string) error
}

// Known is what this host remembers of the registry while the registry is away.
type Known interface {
	// KnownInstance finds an instance of this host by id, name or the beginning
	// of its id.
	KnownInstance(ctx context.Context, ref string) (api.Instance, bool)
}
