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
	// Report sends a report to the registry, and returns when the registry has answered or cannot
	// be reached; a later report repeats a lost one. It returns the hypervisor's error if the
	// instances' state is unknown.
	Report func(ctx context.Context) error
}

// Site has the registry's calls for instances. Every change has an op id and may be repeated.
// Errors are *api.Error; after registry_unavailable the outcome is unknown.
type Site interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
	// Attachments returns the attachments of a volume at an instance. An empty volume or instance
	// stands for any.
	Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error)
	TransitionInstance(ctx context.Context, opID, ref string, in api.InstanceTransition) (api.ShelvedInstance, error)
	// PermitPause asks the registry whether a guest of a move may be suspended, restored or
	// resumed now. Each request needs a new op id.
	PermitPause(ctx context.Context, opID, migration string, in api.PausePermit) (api.Migration, error)
}

// GuardKeeper prevents starts of domains (guard.Dir).
type GuardKeeper interface {
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	Of(domainID string) ([]guard.Guard, error)
	IssueStartToken(domainID, owner string) (string, error)
	RevokeStartToken(domainID string) error
	HookKnowsStartTokens() error
	Enforced() error
}

// Locations gives access to this host's images of volumes. attach.Manager documents the calls.
type Locations interface {
	Connect(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error)
	Chain(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error)
	CheckLocation(ctx context.Context, l api.Location, verdict string) error
	CheckImages(l api.Location) error
	Disconnect(ctx context.Context, vol api.Volume, att api.Attachment) error
}

// Images gives access to images, and to the directory of save images. image.Storage documents the
// calls.
type Images interface {
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	Fingerprint(ctx context.Context, path string) (string, error)
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	Connect(ctx context.Context, path string) error
	Disconnect(ctx context.Context, path string) error
	Flush(ctx context.Context, path string) error
	FreeBytes(dir string) (int64, error)
	InMemory(dir string) (bool, error)
}

// Migrations lists the migrations of this host (migrate.Manager).
type Migrations interface {
	// List returns this host's open migrations or, if all is true, all migrations.
	List(ctx context.Context, all bool) ([]api.Migration, error)
}

// Parts does this host's part of the moves that the registry runs on several hosts (parts.Parts).
type Parts interface {
	// CheckPaused refuses a move with all guests paused for reasons that forbid any move of the
	// volume: its image, its disk in this instance, or other users on this host. beside has the
	// ids of the instances that the volume has in the registry. It changes nothing.
	CheckPaused(ctx context.Context, vol api.Volume, att api.Attachment, beside []string) error
	// StoodStill is for moves during which all guests write. It refuses to save an instance that
	// has written to its volume after the move's last read of its writes. Call it right before the
	// process ends.
	StoodStill(ctx context.Context, migrationID, instanceID string) error
}

// MovingGuests knows the guests with moving volumes (monitor.Monitor).
type MovingGuests interface {
	// Switching reports whether a migration may have paused the instance.
	Switching(instanceID string) bool
	// MayStart refuses the start of an instance if its chains may be wrong. Its error has the
	// reason and the remedy.
	MayStart(ctx context.Context, instanceID string) error
	// Misnamed returns the disks of an instance that is off, if their definition lacks the overlay
	// that a migration requires. It returns an error if it is not safe to name the overlay.
	Misnamed(ctx context.Context, instanceID string, srcUnwritten bool) ([]hv.NamedChain, error)
	// Standing reports whether an op of the instance's migration waits for the operator.
	Standing(ctx context.Context, instanceID string) (bool, error)
	// NameStanding puts the present image of the migration's disk into the definition of an
	// instance if Standing is true. For an unknown image it returns an error, typed for the
	// runner.
	NameStanding(ctx context.Context, instanceID string) error
}

// Known is this host's cache of the registry, used while the registry does not answer.
type Known interface {
	// KnownInstance finds this host's instance by id, name or the beginning of its id.
	KnownInstance(ctx context.Context, ref string) (api.Instance, bool)
}
