// SPDX-License-Identifier: Apache-2.0

package move

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

// Registry is a migration's part of the registry. Every change has an op id and may be repeated.
// Errors are *api.Error; after the code registry_unavailable the outcome is unknown.
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

// Images has the operations on images at paths and addresses (image.Storage).
type Images interface {
	// CreateOverlay makes an empty qcow2 overlay over backing, durably, with these rights unless
	// they are nil. An existing empty overlay over the same backing image is no error.
	CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64, rights *image.Rights) error
	// CheckOverlay reports whether the overlay at path, over this backing image and of this size,
	// has no own data. It returns image.ErrAbsent for a missing file, and another error for a file
	// that is no such overlay.
	CheckOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64) (empty bool, err error)
	// CheckSecret returns an error if libvirt does not return the passphrase of a LUKS container.
	CheckSecret(ctx context.Context, img hv.Image) error
	// PayloadBytes returns the size of a LUKS container's payload.
	PayloadBytes(ctx context.Context, img hv.Image) (int64, error)
	// Fold merges the overlay into the top of a chain that equals the overlay's backing image,
	// durably. It keeps the overlay, so an interrupted fold can be repeated.
	Fold(ctx context.Context, overlay string, into []hv.Image) error
	// Create makes a new image, or returns fs.ErrExist.
	Create(ctx context.Context, img hv.Image, sizeBytes int64, about image.NewFile) error
	// FullBytes returns the size of a block device that holds a full qcow2 image of this size.
	FullBytes(ctx context.Context, sizeBytes int64) (int64, error)
	// CreateOnDevice makes an empty qcow2 image over the content of the block device with this
	// fingerprint, durably. It returns an *image.ReplacedError for another device at the path. It
	// may be repeated.
	CreateOnDevice(ctx context.Context, path string, sizeBytes int64, fingerprint string) error
	// Rights returns the rights of the image at path while no guest has it, nil for a device.
	// GiveRights sets all of them on another image file, GiveBack those that libvirt changes. Both
	// return the refused rights in words.
	Rights(ctx context.Context, path string) (*image.Rights, error)
	GiveRights(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	GiveBack(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	// Inspect reads size and kind of the image at a location. It returns image.ErrAbsent for a
	// missing image, and an *api.Error for an image that does not match the location or has other
	// base images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// Blank reports whether an image has no data to lose. Of a raw file only the volume's bytes
	// count. A qcow2 image may be on a device.
	Blank(ctx context.Context, l api.Location) (bool, error)
	// Stamp returns a stamp that each write to the image changes, without reading the image, or
	// image.ErrAbsent.
	Stamp(ctx context.Context, path string) (image.Stamp, error)
	// Fingerprint returns a text that distinguishes an image from a later one at its path, also
	// after a reboot, or image.ErrAbsent.
	Fingerprint(ctx context.Context, path string) (string, error)
	// Snapshot returns the state of an RBD image's snapshot, and with compare also whether the
	// image was written since. It returns image.ErrAbsent for a missing image, and image.ErrSilent
	// if the cluster does not answer.
	Snapshot(ctx context.Context, path, name string, compare bool) (rbd.Snapshot, error)
	// MakeSnapshot makes a snapshot of the RBD image with this fingerprint. RemoveSnapshot removes
	// the snapshot with this name and id, or does nothing if it is missing. Both return the errors
	// of Snapshot.
	MakeSnapshot(ctx context.Context, path, fingerprint, name string) error
	RemoveSnapshot(ctx context.Context, path, fingerprint, name string, id uint64) error
	// Connect drops this host's cache of the image: another host may have written to it.
	Connect(ctx context.Context, path string) error
	// Flush writes this host's cache of an image to stable storage. If it could not, it returns an
	// *image.NotStoredError, and only once.
	Flush(ctx context.Context, path string) error
	// Answers returns an error if an NBD server answers neither a read nor a flush within a time
	// that suffices for any working server. It does not ask other storage.
	Answers(ctx context.Context, path string) error
	// Fence refuses an RBD image without an exclusive lock: a killed client's begun write could
	// still complete there.
	Fence(ctx context.Context, path string) error
	// InUse returns in words the users of the image that this host sees, or "": a mount, a
	// device-mapper or loop device, swap, or clients of an RBD image beyond those that ours (may
	// be nil) counts.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Written reports whether a process of this host, or QEMU on another host, is seen to have the
	// file open for writing.
	Written(ctx context.Context, path string) (bool, error)
	// Locks returns who has a file open, on any host, by QEMU's locks.
	Locks(ctx context.Context, path string) (image.Locks, error)
	// RemoveMade removes an image that Create has made, including an RBD image once no client has
	// it open. fingerprint is empty if unknown.
	RemoveMade(ctx context.Context, path, fingerprint string) error
	// RealPath returns the path of the image without links, or image.ErrAbsent. It refuses files
	// that are no image and places where images may not be.
	RealPath(path string) (string, error)
	// Remove unlinks a file, durably, if it exists. It never removes block devices and images at
	// addresses.
	Remove(ctx context.Context, path string) error
	// Beside returns the files in the directory of path with the same name and another ending,
	// like the images of libvirt's snapshots.
	Beside(path string) ([]string, error)
	// AllocatedBytes returns the disk space that a file uses.
	AllocatedBytes(path string) (int64, error)
	// Properties reads the properties of a qcow2 image that its guest does not see.
	Properties(path string) (image.Properties, error)
	// ClusterBytes returns the cluster size of a qcow2 image.
	ClusterBytes(path string) (int64, error)
	// FreeBytes returns by how much a file in dir may grow.
	FreeBytes(dir string) (int64, error)
	// Quotas returns this user's limits on a file's size in dir, without the filesystem's size.
	Quotas(ctx context.Context, dir string, who hv.ProcessUser) ([]quota.Limit, error)
	// Reach returns an *image.ReachError if a process of this user cannot reach the files in a
	// directory.
	Reach(user hv.ProcessUser, dir string) error
	// MayOpen returns an *image.OpenError if a process of this user cannot open an image for
	// reading and writing. No process may have the image open.
	MayOpen(user hv.ProcessUser, path string) error
	// Allocating returns how the directory's filesystem allocates space for files. Thick reports
	// whether a file has as much space as its volume's bytes. Allocate allocates the first
	// sizeBytes of a file, durably; its error wraps errors.ErrUnsupported if the filesystem cannot
	// do that.
	Allocating(dir string) (image.Allocating, error)
	Thick(path string, sizeBytes int64) (bool, error)
	Allocate(ctx context.Context, path string, sizeBytes int64) error
	// AttributesLost returns in words the storage attributes of the file at path that a new file
	// in dir would lack; filled means that another program makes the new file. StoreLike gives the
	// attributes of the file like to a pool's new file at path, and returns the missing ones in
	// words.
	AttributesLost(path, dir string, filled bool) ([]string, error)
	StoreLike(ctx context.Context, path, like string) ([]string, error)
	// TryDirectory makes and removes an image in a directory. It returns an *image.LimitError if
	// the filesystem lacks one of the needs, and an *image.OpenError if a process of this user
	// cannot open the image.
	TryDirectory(user hv.ProcessUser, dir string, needs image.Needs) error
	// MayWrite returns an error if this program cannot write in the path's directory.
	MayWrite(path string) error
	// DirectAlignBytes returns the alignment in dir of a raw file's size that QEMU needs for
	// O_DIRECT. hole: the file begins with a hole.
	DirectAlignBytes(dir string, hole bool) (int64, error)
	// Mark writes a text to the beginning of a raw image, durably; another host recognises the
	// image with Marked.
	Mark(ctx context.Context, path, text string) error
	Marked(ctx context.Context, path, text string) (bool, error)
	// FillFirstBlock writes the first block of a raw file, durably, if it is a hole, without
	// changing the content. No program may write to the file meanwhile.
	FillFirstBlock(ctx context.Context, path string) error
}

// Copier copies and compares images.
type Copier interface {
	// Copy makes dst equal to src, durably, and reads dst back if requested. It continues from the
	// cursor of its key.
	Copy(ctx context.Context, req CopyRequest) (CopyResult, error)
	// Compare returns nil for equal content, otherwise an *api.Error with copy_mismatch and the
	// first different offset.
	Compare(ctx context.Context, src, dst []hv.Image, sizeBytes int64, progress func(Progress)) error
	// SetUpdate stores the operator's changes to the options of a copy, durably. Update returns
	// them, or a zero value.
	SetUpdate(key string, in api.MigrationUpdate) error
	Update(key string) (api.MigrationUpdate, error)
	// Unanswered reports whether a storage has not answered a request of this copy to copy by
	// itself: the storage may still write to dst.
	Unanswered(key string) (bool, error)
	// Restart makes the copy begin again, without the changes to its options. An Unanswered
	// request remains so.
	Restart(key string) error
	// Forget removes the copy's cursor and the changes to its options.
	Forget(ctx context.Context, key string) error
	// CopyUnits copies units while other programs write to them, durably (copy.Units). It
	// continues from the cursor of its key.
	CopyUnits(ctx context.Context, req UnitsRequest) (copy.UnitsResult, error)
	// KeepUnits stores units under a key, durably. KeptUnits returns them, or fs.ErrNotExist.
	KeepUnits(key string, kept KeptUnits) error
	KeptUnits(key string) (KeptUnits, error)
	// ForgetUnits removes the cursors of CopyUnits and the kept units under keys with this prefix.
	ForgetUnits(prefix string) error
}

// CopyRequest is a request to copy the content of a chain. If Dst is over base images, these are
// Src's, and only the data in Src's top image is copied. Key names the cursor.
type CopyRequest struct {
	Key       string
	Src       []hv.Image
	Dst       []hv.Image
	SizeBytes int64
	// DstPrint is the fingerprint that dst must have before the first write, or empty if unknown.
	DstPrint string
	// DstIsZero: the migration made dst, and nothing was written to it.
	DstIsZero bool
	// Thick: dst must not share blocks with Src to save space.
	Thick bool
	// Begins is called right before the first write. If it fails nothing is copied.
	Begins func() error
	// Offload describes how the storage copies by itself; nil if it cannot.
	Offload *copy.Offload
	// Options is called repeatedly, since the operator may change them.
	Options func() api.CopyOptions
	// GuestStats samples the guest's requests, so that the copy can yield to them; nil without a
	// running guest.
	GuestStats func(ctx context.Context) (*hv.DiskStats, error)
	Progress   func(Progress)
}

// KeptUnits are the units that remain to be copied.
type KeptUnits struct {
	Ranges []copy.Range     `json:"ranges,omitempty"`
	Again  []copy.Differing `json:"again,omitempty"`
}

// Bytes returns an upper bound: a unit may be in both lists.
func (k *KeptUnits) Bytes() (sum int64) {
	for _, r := range k.Ranges {
		sum += r.Bytes
	}
	for _, d := range k.Again {
		sum += d.Bytes
	}
	return sum
}

// UnitsRequest is the request of CopyUnits.
type UnitsRequest struct {
	Key       string
	Src, Dst  hv.Image
	SizeBytes int64
	UnitBytes int64
	Ranges    []copy.Range
	Again     []copy.Differing
	Still     bool
	Options   api.CopyOptions
	// GuestStats samples the guests' requests, so that the copy can yield to them.
	GuestStats func(ctx context.Context) (*hv.DiskStats, error)
	Progress   func(Progress)
}

// Progress is the progress of a copy.
type Progress struct {
	Phase              string
	BytesTotal         int64
	BytesDone          int64
	RateBytesPerSecond int64
	Pacing             Pacing
}

// CopyResult is the result of a copy.
type CopyResult struct {
	BytesTotal  int64  `json:"bytes_total"`
	BytesCopied int64  `json:"bytes_copied"`
	BytesZero   int64  `json:"bytes_zero"`
	Cloned      bool   `json:"cloned"`
	Offloaded   bool   `json:"offloaded,omitempty"`
	Verified    bool   `json:"verified"`
	Digest      string `json:"digest,omitempty"`
	// Remark names the program that copied, if that is unexpected.
	Remark string `json:"remark,omitempty"`
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
	Blobs    Blobs
	// Claims knows which images are in use.
	Claims *location.Claims
	// MayMove returns an error for a volume that a guest may release at any time after a detach
	// (attach.Manager). Nil: volumes are never detached.
	MayMove func(ctx context.Context, volumeID string) error
	// Audit adds an event to the audit trail. Nil: events are dropped.
	Audit func(e api.EventPost)
	// JobStart returns the effect of this version of QEMU on an unsuspended guest when a block job
	// begins. The version is zero if unknown. Nil: hv.JobStartOf.
	JobStart func(qemu hv.Version) hv.JobStart
	// CountPaced adds up how long block jobs yielded to their guests. Nil: not counted.
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
