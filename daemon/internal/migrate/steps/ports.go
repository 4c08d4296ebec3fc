// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/quota"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
)

// Registry is the part of the registry that a migration needs. Every change has an op id
// and may be repeated. Errors are *api.Error; the code registry_unavailable means that the
// outcome is unknown.
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

// Images are the image files and devices of this host, by path
// (image.Storage).
type Images interface {
	// CreateOverlay makes an empty qcow2 overlay over backing, with these rights if they
	// are not nil, and returns when file and directory are on stable storage. An existing
	// empty overlay of the same backing image is no error.
	CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64, rights *image.Rights) error
	// CheckOverlay reports whether the overlay at path, over this backing and of this size,
	// holds no data of its own. It returns image.ErrAbsent if there is no file, and another
	// error if the file is not such an overlay.
	CheckOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64) (empty bool, err error)
	// CheckSecret refuses a LUKS container whose passphrase libvirt does not give.
	CheckSecret(ctx context.Context, img hv.Image) error
	// PayloadBytes is the size of what a guest sees of a LUKS container.
	PayloadBytes(ctx context.Context, img hv.Image) (int64, error)
	// Fold merges the overlay into the top of a chain that equals its backing image, and
	// returns when that is on stable storage. It does not change the overlay, so that a
	// fold that was cut off can be repeated.
	Fold(ctx context.Context, overlay string, into []hv.Image) error
	// Create makes a new image. It returns fs.ErrExist if there is anything at its path.
	Create(ctx context.Context, img hv.Image, sizeBytes int64, about image.NewFile) error
	// FullBytes is how large a block device has to be for a new qcow2 image of this size.
	FullBytes(ctx context.Context, sizeBytes int64) (int64, error)
	// CreateOnDevice makes a qcow2 image, which reads as zeros, on a block device with this
	// fingerprint, over what is there, durably. It returns an *image.ReplacedError if another
	// device is there, and may be called again.
	CreateOnDevice(ctx context.Context, path string, sizeBytes int64, fingerprint string) error
	// Rights returns who may use the image at path while no guest has it, nil for a device.
	// GiveRights gives these rights to another image file. GiveBack gives back those that
	// libvirt changes. Both return in words what the filesystem has refused.
	Rights(ctx context.Context, path string) (*image.Rights, error)
	GiveRights(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	GiveBack(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	// Inspect reads size and kind of the image at a location. It returns image.ErrAbsent if
	// there is nothing at its path, and an *api.Error if the image is not as the location
	// says, or has other base images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// Blank reports whether an image file has nothing that anybody could miss in the bytes that
	// a volume at the location has, and whether a qcow2 image on a device has no data.
	Blank(ctx context.Context, l api.Location) (bool, error)
	// Stamp tells whether an image was written to, without reading it. It returns
	// image.ErrAbsent if there is nothing at its path.
	Stamp(ctx context.Context, path string) (image.Stamp, error)
	// Fingerprint tells an image from a later image at the same path, also after a reboot.
	// It returns image.ErrAbsent if there is nothing.
	Fingerprint(ctx context.Context, path string) (string, error)
	// Snapshot says what there is of a snapshot of an RBD image, and with compare whether anything
	// was written to the image since. It returns image.ErrAbsent if there is no image, and
	// image.ErrSilent if its cluster does not answer.
	Snapshot(ctx context.Context, path, name string, compare bool) (rbd.Snapshot, error)
	// MakeSnapshot makes a snapshot of the RBD image with this fingerprint. RemoveSnapshot removes
	// the one with this name and id; it is no error if there is none. Their errors are as those of
	// Snapshot.
	MakeSnapshot(ctx context.Context, path, fingerprint, name string) error
	RemoveSnapshot(ctx context.Context, path, fingerprint, name string, id uint64) error
	// Connect drops what this host has cached of the image: another host may have written
	// to it.
	Connect(ctx context.Context, path string) error
	// Flush writes what this host has cached of an image to stable storage. An
	// *image.NotStoredError says that it could not: it is said once.
	Flush(ctx context.Context, path string) error
	// Answers returns an error if what is at the address of an NBD export says nothing at all to a
	// reading and a flush in a time in which any server does. Nothing else is asked.
	Answers(ctx context.Context, path string) error
	// Fence refuses an RBD image from which nobody keeps what a client that was killed has begun to
	// write.
	Fence(ctx context.Context, path string) error
	// InUse says in words who holds the image: a mount, a device mapper or loop device,
	// swap, or, of an RBD image, clients besides those that ours counts, which may be nil. It
	// returns "" if nobody does as far as this host can see.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Written reports whether some process of this host, or QEMU on another, is seen to have the
	// file open for writing.
	Written(ctx context.Context, path string) (bool, error)
	// Locks says who has a file open by the locks that QEMU takes, on whatever host.
	Locks(ctx context.Context, path string) (image.Locks, error)
	// RemoveMade is Remove for what Create has made, whose fingerprint is this one, if it is known:
	// an RBD image is deleted as well, once nobody has it open.
	RemoveMade(ctx context.Context, path, fingerprint string) error
	// RealPath returns where the image at path is, without links. It refuses what is no image, or
	// is where no image may be, and returns image.ErrAbsent if there is nothing.
	RealPath(path string) (string, error)
	// Remove unlinks a file, durably. It is no error if there is none. A block device is never
	// removed, nor is what is at an address.
	Remove(ctx context.Context, path string) error
	// Beside returns the other files in the directory of path whose names differ from its in the
	// ending only: so libvirt names the image of a snapshot.
	Beside(path string) ([]string, error)
	// AllocatedBytes returns how much of the disk a file takes.
	AllocatedBytes(path string) (int64, error)
	// Properties reads what a qcow2 image has besides what a guest sees of it.
	Properties(path string) (image.Properties, error)
	// ClusterBytes returns the size of the clusters of a qcow2 image.
	ClusterBytes(path string) (int64, error)
	// FreeBytes returns how much a file in dir may still grow.
	FreeBytes(dir string) (int64, error)
	// Quotas returns the limits on what a file in dir that belongs to this user may take, besides
	// the size of the filesystem.
	Quotas(ctx context.Context, dir string, who hv.ProcessUser) ([]quota.Limit, error)
	// Reach returns nil if a process of this user can get to the files in a directory, and
	// an *image.ReachError if not.
	Reach(user hv.ProcessUser, dir string) error
	// MayOpen returns nil if a process of this user can open an image that nobody has open,
	// for reading and writing, and an *image.OpenError if not.
	MayOpen(user hv.ProcessUser, path string) error
	// Allocating says how the filesystem of a directory gives its files room. Thick reports whether
	// a file takes as much as its volume has bytes. Allocate gives a file room for its first
	// sizeBytes, durably; the error wraps errors.ErrUnsupported where its filesystem cannot.
	Allocating(dir string) (image.Allocating, error)
	Thick(path string, sizeBytes int64) (bool, error)
	Allocate(ctx context.Context, path string, sizeBytes int64) error
	// AttributesLost returns in words what a file that is made in a directory would not have of how
	// the one at path is stored; filled says that another program makes it. StoreLike has what a
	// pool has made at path stored as the file like, and returns what it does not have.
	AttributesLost(path, dir string, filled bool) ([]string, error)
	StoreLike(ctx context.Context, path, like string) ([]string, error)
	// TryDirectory makes an image in a directory and removes it. It returns an *image.LimitError
	// for what the filesystem cannot do that is needed, and an *image.OpenError if a process of
	// this user cannot open the image.
	TryDirectory(user hv.ProcessUser, dir string, needs image.Needs) error
	// MayWrite refuses an image in a directory where this program cannot write.
	MayWrite(path string) error
	// DirectAlignBytes returns what the size of a raw file in dir has to be a multiple of, so
	// that QEMU writes to it past the page cache; hole says that it begins with a hole.
	DirectAlignBytes(dir string, hole bool) (int64, error)
	// Mark writes a text to the beginning of a raw image, durably, so that another host can
	// tell that it has the same image. Marked reports whether this host reads the text there.
	Mark(ctx context.Context, path, text string) error
	Marked(ctx context.Context, path, text string) (bool, error)
	// FillFirstBlock makes sure, durably, that a raw file which nobody writes to does not begin
	// with a hole. It does not change what the file reads as.
	FillFirstBlock(ctx context.Context, path string) error
}

// Copier copies and compares images.
type Copier interface {
	// Copy makes dst equal to src, durably, and reads dst back if asked to. It continues
	// from the cursor of the same key if there is one.
	Copy(ctx context.Context, req CopyRequest) (CopyResult, error)
	// Compare returns nil if the two have the same content. Otherwise it returns an
	// *api.Error with copy_mismatch and the first offset that differs.
	Compare(ctx context.Context, src, dst []hv.Image, sizeBytes int64, progress func(Progress)) error
	// SetUpdate stores, durably, the operator's changes to a copy that was begun, by its
	// key. Update returns them, a zero value if there are none.
	SetUpdate(key string, in api.MigrationUpdate) error
	Update(key string) (api.MigrationUpdate, error)
	// Unanswered reports whether a copy with this key has asked a storage to copy something that it
	// has not answered: it may write to dst.
	Unanswered(key string) (bool, error)
	// Restart has a copy with this key begin anew, without the changes to it. What is Unanswered
	// stays so.
	Restart(key string) error
	// Forget removes the cursor of a key, and the changes to its copy.
	Forget(ctx context.Context, key string) error
	// CopyUnits copies units that others write meanwhile, durably (copy.Units). It continues
	// from the cursor of the same key if there is one.
	CopyUnits(ctx context.Context, req UnitsRequest) (copy.UnitsResult, error)
	// KeepUnits stores units under a key, durably. KeptUnits returns them; fs.ErrNotExist if
	// there are none.
	KeepUnits(key string, kept KeptUnits) error
	KeptUnits(key string) (KeptUnits, error)
	// ForgetUnits removes every cursor of CopyUnits, and what was kept, whose key begins with
	// prefix.
	ForgetUnits(prefix string) error
}

// CopyRequest asks for a copy of the content of a chain, which is one image unless it is a linked
// clone's. If Dst is over base images these are Src's, and only what the top of Src has is copied.
// Key names its cursor.
type CopyRequest struct {
	Key       string
	Src       []hv.Image
	Dst       []hv.Image
	SizeBytes int64
	// DstPrint is the fingerprint that dst must have before anything is written to it,
	// empty if it is unknown.
	DstPrint string
	// DstIsZero: we have made dst, and nobody has written to it.
	DstIsZero bool
	// Thick: dst has room of its own, which it does not give up to share that of Src.
	Thick bool
	// Begins is called right before the first byte is written. The copy is not made if it fails.
	Begins func() error
	// Offload is how the storage that has both copies by itself; nil if there is none.
	Offload *copy.Offload
	// Options is called again and again, because the operator may change the options.
	Options func() api.CopyOptions
	// GuestStats samples the guest's own requests, so that the copy can give way. It is nil
	// if no guest runs.
	GuestStats func(ctx context.Context) (*hv.DiskStats, error)
	Progress   func(Progress)
}

// KeptUnits are units that are still to be copied.
type KeptUnits struct {
	Ranges []copy.Range     `json:"ranges,omitempty"`
	Again  []copy.Differing `json:"again,omitempty"`
}

// bytes is an upper bound of what is copied: a unit may be in both.
func (k *KeptUnits) bytes() (sum int64) {
	for _, r := range k.Ranges {
		sum += r.Bytes
	}
	for _, d := range k.Again {
		sum += d.Bytes
	}
	return sum
}

// UnitsRequest asks for a copy of units that others write meanwhile (copy.Units).
type UnitsRequest struct {
	Key       string
	Src, Dst  hv.Image
	SizeBytes int64
	UnitBytes int64
	Ranges    []copy.Range
	Again     []copy.Differing
	Still     bool
	Options   api.CopyOptions
	// GuestStats samples the guests' own requests, so that the copy can give way.
	GuestStats func(ctx context.Context) (*hv.DiskStats, error)
	Progress   func(Progress)
}

// Progress is how far a copy is.
type Progress struct {
	Phase              string
	BytesTotal         int64
	BytesDone          int64
	RateBytesPerSecond int64
	Pacing             Pacing
}

// CopyResult is what a copy did.
type CopyResult struct {
	BytesTotal  int64  `json:"bytes_total"`
	BytesCopied int64  `json:"bytes_copied"`
	BytesZero   int64  `json:"bytes_zero"`
	Cloned      bool   `json:"cloned"`
	Offloaded   bool   `json:"offloaded,omitempty"`
	Verified    bool   `json:"verified"`
	Digest      string `json:"digest,omitempty"`
	// Remark says who has copied, if that is not as it may be expected.
	Remark string `json:"remark,omitempty"`
}

// Guards keep a domain from being started (package guard).
type Guards interface {
	// Set and Clear change the guard of one owner: an instance may be guarded for several
	// reasons at once.
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	// Enforced returns nil if libvirt calls the guard hook before it starts a domain, and
	// an error that says why not.
	Enforced() error
}

// Blobs keep data under keys, durably (journal.Journal). Errors of Blob are op.ErrNotFound if
// nothing is kept.
type Blobs interface {
	PutBlob(ctx context.Context, key string, data []byte) error
	Blob(ctx context.Context, key string) ([]byte, error)
	Blobs(ctx context.Context, prefix string) (map[string][]byte, error)
	DeleteBlobs(ctx context.Context, prefix string) error
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
	// Blobs are those of the journal.
	Blobs Blobs
	// Claims knows which images belong to somebody.
	Claims *location.Claims
	// MayMove refuses to move a volume that a guest may let go of at any time
	// (attach.Manager). Nil: volumes are never detached.
	MayMove func(ctx context.Context, volumeID string) error
	// Audit adds an event to the audit trail. Nil: events are dropped.
	Audit func(e api.EventPost)
	// JobStart says what a QEMU of this version, zero if it is not known, may do to a guest that
	// is not suspended while a block job begins. Nil: hv.JobStartOf.
	JobStart func(qemu hv.Version) hv.JobStart
	// CountPaced counts for how long a block job was held back for its guest. Nil: nobody counts.
	CountPaced func(time.Duration)
	// Clock returns the time. Nil: time.Now.
	Clock func() time.Time
}

// Now returns the time of the Clock.
func (p *Ports) Now() time.Time {
	if p.Clock == nil {
		return time.Now()
	}
	return p.Clock()
}
