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

// Registry is the part of the registry that a migration needs. Every change has an op id and may be
// repeated. Errors are *api.Error; after the code registry_unavailable the outcome is unknown.
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

// Images has the operations on image files, devices and addresses (image.Storage). An image is
// named by its path.
type Images interface {
	// CreateOverlay makes an empty qcow2 overlay over backing, with these rights unless they are
	// nil, durably. An existing empty overlay of the same backing image is no error.
	CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64, rights *image.Rights) error
	// CheckOverlay reports whether the overlay at path, over this backing image and of this size,
	// has no data of its own. It returns image.ErrAbsent for a missing file, and another error for
	// a file that is not such an overlay.
	CheckOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64) (empty bool, err error)
	// CheckSecret returns an error for a LUKS container if libvirt does not return its passphrase.
	CheckSecret(ctx context.Context, img hv.Image) error
	// PayloadBytes returns the size of a LUKS container as the guest sees it.
	PayloadBytes(ctx context.Context, img hv.Image) (int64, error)
	// Fold merges the overlay into the top of a chain that equals the overlay's backing image,
	// durably. It does not change the overlay, so an interrupted fold can be repeated.
	Fold(ctx context.Context, overlay string, into []hv.Image) error
	// Create makes a new image. It returns fs.ErrExist if its path exists.
	Create(ctx context.Context, img hv.Image, sizeBytes int64, about image.NewFile) error
	// FullBytes returns the size that a block device needs for a new qcow2 image of this size.
	FullBytes(ctx context.Context, sizeBytes int64) (int64, error)
	// CreateOnDevice makes a qcow2 image, which reads as zeros, on a block device with this
	// fingerprint, over the device's content, durably. It returns an *image.ReplacedError if the
	// path has another device. It may be repeated.
	CreateOnDevice(ctx context.Context, path string, sizeBytes int64, fingerprint string) error
	// Rights returns the rights of the image at path while no guest has it, nil for a device.
	// GiveRights sets all of these rights on another image file, GiveBack only those that libvirt
	// changes. Both return in words the refused rights.
	Rights(ctx context.Context, path string) (*image.Rights, error)
	GiveRights(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	GiveBack(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	// Inspect reads size and kind of the image at a location. It returns image.ErrAbsent if there
	// is no image, and an *api.Error if the image does not match the location or has other base
	// images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// Blank reports whether an image has no data to lose. Of a raw file only the bytes of the
	// volume at the location count. A qcow2 image may be on a device.
	Blank(ctx context.Context, l api.Location) (bool, error)
	// Stamp returns a stamp that changes when the image is written; it does not read the image. It
	// returns image.ErrAbsent if there is no image.
	Stamp(ctx context.Context, path string) (image.Stamp, error)
	// Fingerprint returns a text that distinguishes an image from a later image at the same path,
	// also after a reboot. It returns image.ErrAbsent if there is no image.
	Fingerprint(ctx context.Context, path string) (string, error)
	// Snapshot returns the state of a snapshot of an RBD image, and with compare also whether the
	// image was written since. It returns image.ErrAbsent if there is no image, and image.ErrSilent
	// if its cluster does not answer.
	Snapshot(ctx context.Context, path, name string, compare bool) (rbd.Snapshot, error)
	// MakeSnapshot makes a snapshot of the RBD image with this fingerprint. RemoveSnapshot removes
	// the snapshot with this name and id; a missing snapshot is no error. They return the same
	// errors as Snapshot.
	MakeSnapshot(ctx context.Context, path, fingerprint, name string) error
	RemoveSnapshot(ctx context.Context, path, fingerprint, name string, id uint64) error
	// Connect drops this host's cache of the image: another host may have written to it.
	Connect(ctx context.Context, path string) error
	// Flush writes this host's cache of an image to stable storage. If it could not, it returns an
	// *image.NotStoredError, and only once.
	Flush(ctx context.Context, path string) error
	// Answers returns an error if an NBD server answers neither a read nor a flush within a time
	// that suffices for any working server. Other images are not asked.
	Answers(ctx context.Context, path string) error
	// Fence refuses an RBD image without an exclusive lock: a killed client could still complete a
	// write that it had begun.
	Fence(ctx context.Context, path string) error
	// InUse returns in words the users of the image: a mount, a device-mapper or loop device, swap,
	// or, for an RBD image, clients other than those that ours counts. ours may be nil. It returns
	// "" if this host sees no user.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Written reports whether a process of this host, or QEMU on another host, is seen to have the
	// file open for writing.
	Written(ctx context.Context, path string) (bool, error)
	// Locks returns who has a file open, on any host, by the locks that QEMU takes.
	Locks(ctx context.Context, path string) (image.Locks, error)
	// RemoveMade is Remove for an image that Create has made. fingerprint is empty if it is
	// unknown. An RBD image is deleted too, once no client has it open.
	RemoveMade(ctx context.Context, path, fingerprint string) error
	// RealPath returns the path of the image without links. It refuses files that are no image and
	// places where images may not be, and returns image.ErrAbsent if there is no image.
	RealPath(path string) (string, error)
	// Remove unlinks a file, durably. A missing file is no error. Block devices and images at
	// addresses are never removed.
	Remove(ctx context.Context, path string) error
	// Beside returns the files in the directory of path that differ from it only in the ending, as
	// the images of libvirt's snapshots do.
	Beside(path string) ([]string, error)
	// AllocatedBytes returns the disk space that a file uses.
	AllocatedBytes(path string) (int64, error)
	// Properties reads the properties of a qcow2 image that the guest does not see.
	Properties(path string) (image.Properties, error)
	// ClusterBytes returns the size of the clusters of a qcow2 image.
	ClusterBytes(path string) (int64, error)
	// FreeBytes returns by how much a file in dir may still grow.
	FreeBytes(dir string) (int64, error)
	// Quotas returns the limits on the size of a file of this user in dir, except the filesystem's
	// size.
	Quotas(ctx context.Context, dir string, who hv.ProcessUser) ([]quota.Limit, error)
	// Reach returns nil if a process of this user can reach the files in a directory, and an
	// *image.ReachError if not.
	Reach(user hv.ProcessUser, dir string) error
	// MayOpen returns nil if a process of this user can open an image for reading and writing, and
	// an *image.OpenError if not. No process may have the image open.
	MayOpen(user hv.ProcessUser, path string) error
	// Allocating returns how the filesystem of a directory allocates space for files. Thick reports
	// whether a file has as much space as its volume has bytes. Allocate allocates the first
	// sizeBytes of a file, durably; its error wraps errors.ErrUnsupported if the filesystem cannot
	// do that.
	Allocating(dir string) (image.Allocating, error)
	Thick(path string, sizeBytes int64) (bool, error)
	Allocate(ctx context.Context, path string, sizeBytes int64) error
	// AttributesLost returns in words the storage attributes of the file at path that a new file in
	// dir would lack. filled: another program makes the new file. StoreLike gives the attributes of
	// the file like to a file that a pool has just made at path, and returns in words the missing
	// ones.
	AttributesLost(path, dir string, filled bool) ([]string, error)
	StoreLike(ctx context.Context, path, like string) ([]string, error)
	// TryDirectory makes an image in a directory and removes it. It returns an *image.LimitError if
	// the filesystem lacks something in needs, and an *image.OpenError if a process of this user
	// cannot open the image.
	TryDirectory(user hv.ProcessUser, dir string, needs image.Needs) error
	// MayWrite returns an error if this program cannot write in the directory of path.
	MayWrite(path string) error
	// DirectAlignBytes returns the alignment that the size of a raw file in dir needs, so that QEMU
	// can write to it with O_DIRECT. hole: the file begins with a hole.
	DirectAlignBytes(dir string, hole bool) (int64, error)
	// Mark writes a text to the beginning of a raw image, durably, so that another host can
	// recognise the image. Marked reports whether this host reads the text there.
	Mark(ctx context.Context, path, text string) error
	Marked(ctx context.Context, path, text string) (bool, error)
	// FillFirstBlock writes the first block of a raw file, durably, if the file begins with a hole.
	// The file's content does not change. No program may write to the file meanwhile.
	FillFirstBlock(ctx context.Context, path string) error
}

// Copier copies and compares images.
type Copier interface {
	// Copy makes dst equal to src, durably, and reads dst back if requested. It continues from the
	// cursor of the same key, if there is one.
	Copy(ctx context.Context, req CopyRequest) (CopyResult, error)
	// Compare returns nil if both have the same content. Otherwise it returns an *api.Error with
	// copy_mismatch and the first offset that differs.
	Compare(ctx context.Context, src, dst []hv.Image, sizeBytes int64, progress func(Progress)) error
	// SetUpdate stores, durably, the operator's changes to the options of a copy, by its key.
	// Update returns them, or a zero value.
	SetUpdate(key string, in api.MigrationUpdate) error
	Update(key string) (api.MigrationUpdate, error)
	// Unanswered reports whether the copy with this key has a request to a storage to copy
	// something that the storage has not answered: the storage may still write to dst.
	Unanswered(key string) (bool, error)
	// Restart makes the copy with this key begin again, without the changes to its options. An
	// Unanswered request remains so.
	Restart(key string) error
	// Forget removes the cursor of a key, and the changes to the copy's options.
	Forget(ctx context.Context, key string) error
	// CopyUnits copies units while other programs write to them, durably (copy.Units). It continues
	// from the cursor of the same key, if there is one.
	CopyUnits(ctx context.Context, req UnitsRequest) (copy.UnitsResult, error)
	// KeepUnits stores units under a key, durably. KeptUnits returns them, or fs.ErrNotExist.
	KeepUnits(key string, kept KeptUnits) error
	KeptUnits(key string) (KeptUnits, error)
	// ForgetUnits removes all cursors of CopyUnits and all kept units with keys that begin with
	// prefix.
	ForgetUnits(prefix string) error
}

// CopyRequest is a request to copy the content of a chain, which is one image unless it is a linked
// clone's. If Dst is over base images, these are Src's, and only the data in the top of Src is
// copied. Key names the cursor.
type CopyRequest struct {
	Key       string
	Src       []hv.Image
	Dst       []hv.Image
	SizeBytes int64
	// DstPrint is the fingerprint that dst must have before the first byte is written, or empty if
	// it is unknown.
	DstPrint string
	// DstIsZero: the migration made dst, and no program has written to it.
	DstIsZero bool
	// Thick: dst has space of its own, which it must not give up to share blocks with Src.
	Thick bool
	// Begins is called right before the first byte is written. If it fails nothing is copied.
	Begins func() error
	// Offload describes how the storage of both can copy by itself; nil if it cannot.
	Offload *copy.Offload
	// Options is called repeatedly, since the operator may change the options.
	Options func() api.CopyOptions
	// GuestStats samples the guest's own requests, so that the copy can yield to them. It is nil if
	// no guest runs.
	GuestStats func(ctx context.Context) (*hv.DiskStats, error)
	Progress   func(Progress)
}

// KeptUnits are the units that remain to be copied.
type KeptUnits struct {
	Ranges []copy.Range     `json:"ranges,omitempty"`
	Again  []copy.Differing `json:"again,omitempty"`
}

// Bytes returns an upper bound of the bytes to copy: a unit may be in both lists.
func (k *KeptUnits) Bytes() (sum int64) {
	for _, r := range k.Ranges {
		sum += r.Bytes
	}
	for _, d := range k.Again {
		sum += d.Bytes
	}
	return sum
}

// UnitsRequest is a request to copy units while other programs write to them (copy.Units).
type UnitsRequest struct {
	Key       string
	Src, Dst  hv.Image
	SizeBytes int64
	UnitBytes int64
	Ranges    []copy.Range
	Again     []copy.Differing
	Still     bool
	Options   api.CopyOptions
	// GuestStats samples the guests' own requests, so that the copy can yield to them.
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
	// Remark says which program has copied, if that is unexpected.
	Remark string `json:"remark,omitempty"`
}

// Guards prevent that a domain is started (package guard).
type Guards interface {
	// Set and Clear change the guard of one owner: an instance may have guards for several reasons
	// at once.
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	// Enforced returns nil if libvirt calls the guard hook before it starts a domain, and otherwise
	// an error with the reason.
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
	// Blobs are the journal's.
	Blobs Blobs
	// Claims knows which images are in use.
	Claims *location.Claims
	// MayMove returns an error for a volume that a guest may release at any time after a detach
	// (attach.Manager). Nil: volumes are never detached.
	MayMove func(ctx context.Context, volumeID string) error
	// Audit adds an event to the audit trail. Nil: events are dropped.
	Audit func(e api.EventPost)
	// JobStart returns what a QEMU of this version may do to a guest that is not suspended while a
	// block job begins. The version is zero if it is unknown. Nil: hv.JobStartOf.
	JobStart func(qemu hv.Version) hv.JobStart
	// CountPaced adds up how long block jobs were slowed down for their guests. Nil: not counted.
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
