// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// Registry is what a migration needs of the registry. Every mutation carries
// an op id and may be repeated. Errors are *api.Error; the code
// registry_unavailable means that the outcome is unknown.
type Registry interface {
	Volume(ctx context.Context, id string) (api.Volume, error)
	Attachment(ctx context.Context, id string) (api.Attachment, error)
	Instance(ctx context.Context, id string) (api.Instance, error)
	Migration(ctx context.Context, id string) (api.Migration, error)
	GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error)
	RegisterMigration(ctx context.Context, opID string, m api.MigrationRegister) (api.Migration, error)
	TransitionMigration(ctx context.Context, opID, id string, t api.MigrationTransition) (api.Migration, error)
}

// Images are the image files and devices of this host, by path
// (image.Storage).
type Images interface {
	// CreateOverlay makes an empty qcow2 overlay over backing, with these rights if
	// there are any, and returns when file and directory are on stable storage. An
	// empty overlay of the same backing image that exists already is no error.
	CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64, rights *image.Rights) error
	// CheckOverlay says whether path is an overlay over backing of this size,
	// and whether it holds no data of its own: image.ErrAbsent if there is no file,
	// another error if it is something else.
	CheckOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64) (empty bool, err error)
	// Fold merges the overlay into the top of a chain that equals its backing image, and
	// returns when that is on stable storage. The overlay is left as it is, so
	// that a fold that was cut off can be made again.
	Fold(ctx context.Context, overlay string, into []hv.Image) error
	// Create makes a new image. fs.ErrExist if there is anything at its path.
	Create(ctx context.Context, img hv.Image, sizeBytes int64, about image.NewFile) error
	// Rights returns who may use the image at path when no guest has it, nil for a device.
	// GiveRights gives these rights to another image file, and GiveBack restores those that
	// libvirt changes. Both return in words what the filesystem of the file refused.
	Rights(ctx context.Context, path string) (*image.Rights, error)
	GiveRights(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	GiveBack(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	// Inspect reads size and kind of the image at a location. image.ErrAbsent if there is
	// nothing at its path; an *api.Error if what is there is no such image, or is over others
	// than the location says.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// Stamp tells whether an image was written since, without reading it.
	// image.ErrAbsent if there is nothing at its path.
	Stamp(ctx context.Context, path string) (image.Stamp, error)
	// Fingerprint tells an image from another one that is at its path later, also
	// after a reboot. image.ErrAbsent if there is nothing.
	Fingerprint(ctx context.Context, path string) (string, error)
	// Connect drops what this host has cached of the image: another host may have written
	// to it.
	Connect(ctx context.Context, path string) error
	// Flush writes what this host has cached of an image to stable storage.
	Flush(ctx context.Context, path string) error
	// InUse says who holds the image, in words, or "" if nobody that can be
	// seen on this host does: a mount, a device mapper or loop device, swap.
	InUse(ctx context.Context, path string) (string, error)
	// Remove unlinks a file, durably. Absent is no error. A block device is
	// never removed.
	Remove(ctx context.Context, path string) error
	// AllocatedBytes is how much of the disk a file takes.
	AllocatedBytes(path string) (int64, error)
	// FreeBytes is how much a file in dir may still grow.
	FreeBytes(dir string) (int64, error)
	// Reach returns nil if a process of this user gets to what is in a directory, and
	// an *image.ReachError if not.
	Reach(user hv.ProcessUser, dir string) error
	// MayOpen returns nil if a process of this user can open an image that nobody has,
	// for reading and writing, and an *image.OpenError if not.
	MayOpen(user hv.ProcessUser, path string) error
	// MayWrite refuses an image in whose directory this program can write nothing.
	MayWrite(path string) error
}

// Copier copies and compares images.
type Copier interface {
	// Copy makes dst equal to src, durably, and, if asked, reads dst back. It
	// goes on from the cursor of the same key if there is one.
	Copy(ctx context.Context, req CopyRequest) (CopyResult, error)
	// Compare returns nil if the two have the same content, and an *api.Error
	// with copy_mismatch and the first offset if not.
	Compare(ctx context.Context, src []hv.Image, dst hv.Image, sizeBytes int64, progress func(Progress)) error
	// SetUpdate stores, durably, what the operator changes of the copy of a key after it
	// was begun; Update returns it, a zero value if nothing was changed.
	SetUpdate(key string, in api.MigrationUpdate) error
	Update(key string) (api.MigrationUpdate, error)
	// Forget drops the cursor of a key, and what was changed of its copy.
	Forget(ctx context.Context, key string) error
}

// CopyRequest is one copy of what a chain holds, which is one image unless it is a linked
// clone's. Key names its cursor.
type CopyRequest struct {
	Key       string
	Src       []hv.Image
	Dst       hv.Image
	SizeBytes int64
	// DstPrint is the fingerprint that dst must have before anything is written to it,
	// empty if it is not known.
	DstPrint string
	// DstIsZero: dst was made by us and nobody wrote to it.
	DstIsZero bool
	// Options is called again and again: the operator may change them.
	Options func() api.CopyOptions
	// GuestStats samples the guest's own requests, so that the copy can give
	// way. Nil where no guest runs.
	GuestStats func(ctx context.Context) (*hv.DiskStats, error)
	Progress   func(Progress)
}

// Progress is how far a copy is.
type Progress struct {
	Phase              string `json:"phase"`
	BytesTotal         int64  `json:"bytes_total"`
	BytesDone          int64  `json:"bytes_done"`
	RateBytesPerSecond int64  `json:"rate_bytes_per_second"`
}

// CopyResult is what a copy did.
type CopyResult struct {
	BytesTotal  int64  `json:"bytes_total"`
	BytesCopied int64  `json:"bytes_copied"`
	BytesZero   int64  `json:"bytes_zero"`
	Cloned      bool   `json:"cloned"`
	Verified    bool   `json:"verified"`
	Digest      string `json:"digest,omitempty"`
}

// Guards keep a domain from being started (package guard).
type Guards interface {
	// Set and Clear change the guard of one owner: an instance may be guarded for several
	// reasons at once.
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	// Enforced returns nil if libvirt asks the guard hook before it starts a
	// domain, and else says why not.
	Enforced() error
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
	Registry Registry
	Guards   Guards
	// Claims knows which images are spoken for.
	Claims *location.Claims
	// MayMove refuses to move a volume that a guest may let go of at any time
	// (attach.Manager). Nil: no volume is ever detached.
	MayMove func(ctx context.Context, volumeID string) error
	// Audit adds an event to the audit trail. Nil: nobody keeps it.
	Audit func(e api.EventPost)
	// MustHold says whether a guest with this version of QEMU, zero if it is not known, has to
	// be suspended while a block job begins. Nil: hv.JobStartLosesWrites.
	MustHold func(qemu hv.Version) bool
	// Clock tells the time. Nil: time.Now.
	Clock func() time.Time
}

// Now is the time by the Clock.
func (p *Ports) Now() time.Time {
	if p.Clock == nil {
		return time.Now()
	}
	return p.Clock()
}
