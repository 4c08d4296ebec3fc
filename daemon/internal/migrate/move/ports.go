// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// Registry is the registry's API for migrations. Each change has an op id and may be repeated.
// Errors are *api.Error. After the code registry_unavailable the outcome is unknown.
type Registry interface {
	Volume(ctx context.Context, id string) (api.Volume, error)
	Attachment(ctx context.Context, id string) (api.Attachment, error)
	Instance(ctx context.Context, id string) (api.Instance, error)
	Migration(ctx context.Context, id string) (api.Migration, error)
	GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error)
	RegisterMigration(ctx context.Context, opID string, m api.MigrationRegister) (api.Migration, error)
	TransitionMigration(ctx context.Context, opID, id string, t api.MigrationTransition) (api.Migration, error)
	IdentifyVolume(ctx context.Context, opID, ref string, in api.VolumeIdentify) (api.Volume, error)
}

// Guards prevent the start of domains (package guard).
type Guards interface {
	// Set and Clear change one owner's guard: an instance may have several guards.
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	// Enforced returns nil if libvirt calls the guard hook before it starts a domain, otherwise an
	// error with the reason.
	Enforced() error
}

// Blobs stores data under keys, durably (journal.Journal). Blob returns op.ErrNotFound for a
// missing key.
type Blobs interface {
	PutBlob(ctx context.Context, key string, data []byte) error
	Blob(ctx context.Context, key string) ([]byte, error)
	Blobs(ctx context.Context, prefix string) (map[string][]byte, error)
	DeleteBlobs(ctx context.Context, prefix string) error
}

// Unplugs are the disks that guests may release at any time after a detach
// (attach.PendingUnplugs).
type Unplugs interface {
	// MayMove returns an error for such a volume.
	MayMove(ctx context.Context, volumeID string) error
	// MayOverlay returns an error for an overlay over another volume of the instance, if the
	// release would prevent a cancel of the move.
	MayOverlay(ctx context.Context, instanceID, volumeName string) error
}

// Host is this host as the registry knows it.
type Host struct {
	ID    string
	Name  string
	Epoch int64
}

// Ports are the systems that a migration works on.
type Ports struct {
	HV       hv.Hypervisor
	Images   Images
	Copier   Copier
	Updates  CopyUpdates
	Units    UnitsCopier
	Registry Registry
	Guards   Guards
	Blobs    Blobs
	// Claims knows which images are in use.
	Claims *location.Claims
	// Unplugs may be nil: then volumes are never detached.
	Unplugs Unplugs
	// Audit adds an event to the audit trail. A nil Audit drops events.
	Audit func(e api.EventPost)
	// JobStart returns what a beginning block job of this QEMU may do to a guest that is not
	// suspended. The version is zero if unknown. A nil JobStart means hv.JobStartOf.
	JobStart func(qemu hv.Version) hv.JobStart
	// CountPaced adds how long a block job has yielded to its guest. It may be nil.
	CountPaced func(time.Duration)
	// Clock returns the time. A nil Clock means time.Now.
	Clock func() time.Time
}

// Now returns the time by Clock.
func (p *Ports) Now() time.Time {
	if p.Clock == nil {
		return time.Now()
	}
	return p.Clock()
}
