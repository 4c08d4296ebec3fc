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
	// Report tells the registry of this host now, and returns when it has
	// answered or cannot: what it did not hear it is told again anyway. The error is
	// the hypervisor's, which did not tell how the instances are.
	Report func(ctx context.Context) error
}

// Site is what the ops of instances need of the registry. Every mutation carries an
// op id and may be repeated. Errors are *api.Error; the code registry_unavailable
// means that the outcome is unknown.
type Site interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
	// Attachments returns those of a volume and at an instance; an empty
	// reference is any.
	Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error)
	TransitionInstance(ctx context.Context, opID, ref string, in api.InstanceTransition) (api.ShelvedInstance, error)
	// PermitPause asks whether a guest of a move with all guests paused may be
	// suspended, restored or resumed now. It is asked under a new op id each time.
	PermitPause(ctx context.Context, opID, migration string, in api.PausePermit) (api.Migration, error)
}

// GuardKeeper keeps domains from being started (Guards).
type GuardKeeper interface {
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	Of(domainID string) ([]guard.Guard, error)
	// IssueStartToken lets the one start through the owner's guard whose definition has the
	// returned text in it, until RevokeStartToken.
	IssueStartToken(domainID, owner string) (string, error)
	RevokeStartToken(domainID string) error
	// HookKnowsStartTokens returns nil if no hook refuses a start with a token.
	HookKnowsStartTokens() error
	// Enforced returns nil if libvirt asks the guard hook before it starts a domain,
	// and else says why not.
	Enforced() error
}

// Locations are the images of volumes on this host (attach.Manager).
type Locations interface {
	// Connect makes the location of an attachment ready for a domain of this host
	// that does not exist yet: it looks at pool, image, size and users as an attach
	// does, and returns the chain. Its errors are typed for the runner. It may be
	// repeated.
	Connect(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error)
	// Disconnect ends the use of the location on this host, unless another domain
	// or attachment needs it.
	Disconnect(ctx context.Context, vol api.Volume, att api.Attachment) error
}

// Images are the images of volumes, and the directory of RAM files, on this host
// (image.Storage).
type Images interface {
	// Inspect reads size and kind of the image at a location. image.ErrAbsent if there is
	// nothing at its path; an *api.Error if what is there is no such image, or is over others
	// than the location says.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// InUse says who holds the image, in words, or "" if nobody that can be seen on
	// this host does: a mount, a device mapper or loop device, swap.
	InUse(ctx context.Context, path string) (string, error)
	// Connect makes the image at path ready for a guest of this host: it drops what
	// this host has cached of it.
	Connect(ctx context.Context, path string) error
	// Disconnect writes what this host has cached of an image to stable storage.
	Disconnect(ctx context.Context, path string) error
	// FreeBytes is how much a file in dir may still grow.
	FreeBytes(dir string) (int64, error)
}

// Migrations are the migrations of this host (migrate.Manager).
type Migrations interface {
	// List returns the migrations of this host: those that are open, or all.
	List(ctx context.Context, all bool) ([]api.Migration, error)
	// Switching says whether a migration may be holding the instance paused now.
	Switching(instanceID string) bool
	// MayStart refuses the start of an instance whose disks nobody can vouch for. Its
	// error says why, and what can be done.
	MayStart(ctx context.Context, instanceID string) error
	// CheckPaused refuses a volume that would not be moved without pausing the guest
	// either: for its image, its disk in this instance, or who else on this host has it.
	// Beside are the ids of the instances that have it by the registry. It changes
	// nothing.
	CheckPaused(ctx context.Context, vol api.Volume, att api.Attachment, beside []string) error
}

// Known is what this host remembers of the registry while that is away.
type Known interface {
	// KnownInstance finds an instance of this host by id, name or the beginning
	// of its id.
	KnownInstance(ctx context.Context, ref string) (api.Instance, bool)
}
