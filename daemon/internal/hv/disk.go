// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"slices"
	"strings"
	"time"
)

// Source types of an image.
const (
	SourceFile  = "file"
	SourceBlock = "block"
	// SourceNetwork is a network source. Image.Path is the address (medium.Kind) of an NBD export
	// or an RBD image, and empty for other network sources.
	SourceNetwork = "network"
)

// Image is one layer of a chain. Type is the libvirt source type: file, block, network, or a type
// that Volferry does not handle (volume, nvme, ...), with an empty Path. Format comes from the XML
// and is never probed; empty if the XML has none.
type Image struct {
	Type   string
	Format string
	Path   string
	// SliceBytes, if not 0: the image is only the first SliceBytes of the larger raw file or
	// device at Path (libvirt's <slice type='storage'>).
	SliceBytes int64
	// LUKSSecret, if not empty, is the UUID of the libvirt secret; QEMU opens the image as LUKS
	// with it. The XML then has no other encryption settings.
	LUKSSecret string
}

// NamedChain is a disk of a domain and the new chain for its persistent definition, top first.
type NamedChain struct {
	Target string
	Chain  []Image
}

// Mirror is a copy or an active commit on a disk as the live XML shows it. Before a pivot check
// Ready and not the job's counters: a job with equal counters may not be ready.
type Mirror struct {
	Job   JobKind
	Image Image // the target; for an active commit the base
	Ready bool
	// Ending: a pivot or an abort is under way, so the final chain of the disk is unknown. Ready
	// is false then.
	Ending bool
}

// CacheUnsafe is the cache mode that ignores all flushes, the guest's and QEMU's own.
const CacheUnsafe = "unsafe"

// Disk is one <disk> of a domain.
type Disk struct {
	Target    string // vda
	Bus       string // virtio, scsi, sata, ...
	Device    string // disk, cdrom, floppy or lun
	Serial    string
	Address   string // guest-visible address in one line, e.g. pci:0000:00:05.0
	BootOrder int    // 0 if none
	// Chain is the image chain, top first. Terminated: the XML ends the chain with an empty
	// <backingStore/>; otherwise libvirt would probe.
	Chain      []Image
	Terminated bool
	// Mirror is nil if no such job runs.
	Mirror *Mirror

	ReadOnly   bool
	Shareable  bool
	Transient  bool
	CopyOnRead bool
	Encrypted  bool // other than by Image.LUKSSecret
	Slices     bool // an image is a part of a larger one, but not its beginning (SliceBytes)
	// Uncarried lists the settings that the disk would lose with another image: encryption,
	// slices, reservations, and unknown settings. ParseDisk also finds settings that are newer
	// than this program.
	Uncarried string
	// ImageSetting names a setting of one image, which libvirt drops when it replaces the image.
	ImageSetting string
	// StartupPolicy tells libvirt how to start the domain without the image. A definition with a
	// startup policy cannot have an image at an address.
	StartupPolicy string
	Cache         string // driver attributes, empty if not set
	Discard       string
	// DiscardNoUnref: the disk has discard_no_unref='on', which libvirt allows for qcow2 images
	// only.
	DiscardNoUnref bool
	ErrorPolicy    string
	// ThrottleGroup is the group of disks that share one limit of throughput; empty if the disk
	// has its own limit.
	ThrottleGroup string
}

// Top returns the image that receives the guest's writes; the zero Image for an empty drive.
func (d *Disk) Top() Image {
	if len(d.Chain) == 0 {
		return Image{}
	}
	return d.Chain[0]
}

// IsLUKS reports whether QEMU opens any image of the disk with a secret.
func (d *Disk) IsLUKS() bool {
	return slices.ContainsFunc(d.Chain, func(img Image) bool { return img.LUKSSecret != "" })
}

// PastPageCache reports whether QEMU bypasses the host's page cache for the disk.
func (d *Disk) PastPageCache() bool { return d.Cache == "none" || d.Cache == "directsync" }

// SamePlace reports whether two disks have the same address in the guest. Equal drive addresses
// are the same place only if the buses are of the same kind.
func (d *Disk) SamePlace(other *Disk) bool {
	return d.Address != "" && d.Address == other.Address && (d.Bus == other.Bus || !strings.HasPrefix(d.Address, "drive:"))
}

// DiskStats are the counters of one live disk since its process started. Times are sums over all
// requests.
type DiskStats struct {
	ReadRequests  int64
	ReadBytes     int64
	ReadTime      time.Duration
	WriteRequests int64
	WriteBytes    int64
	WriteTime     time.Duration
	FlushRequests int64
	FlushTime     time.Duration
	// AllocationBytes is the highest written offset in the top image. For an overlay it is the
	// used space of the local disk.
	AllocationBytes int64
	// CapacityBytes is the disk's size in the process, which the guest sees. The image may have
	// grown without the process.
	CapacityBytes int64
}

// DiskSpec is a disk to attach: Image over Backing, with an explicit end of the chain, opened past
// the host's page cache. The hypervisor chooses the address.
type DiskSpec struct {
	Target    string // vda
	Bus       string // virtio, scsi, ...
	Serial    string
	Image     Image
	Backing   []Image `json:",omitempty"` // top first; empty if the image has no backing image
	ReadOnly  bool
	Shareable bool // another guest may open the image too; raw images only
	BootOrder int  // 1 is the first boot device; 0 if none
	// Definition, if not empty, is a result of DiskDefinition for a disk with this Target. The
	// disk is attached exactly as it was, with its address, and the fields above are ignored.
	Definition string
	// Slot, if not empty, is a result of DiskDefinition. The new disk keeps all of it, including
	// address, boot order and unknown elements, except Target, Image, Backing, ReadOnly, Shareable
	// and, if not empty, Serial, which come from this DiskSpec. AttachDisk returns ErrUnsupported
	// if the old disk has settings that hv.Disk lists as Uncarried.
	Slot string
	// NewAddress ignores the address in Slot; the hypervisor chooses another.
	NewAddress bool
	// NoBootOrder ignores the boot order in Slot.
	NoBootOrder bool
	// Reserved are results of DiskDefinition for detached disks that will be attached again
	// unchanged. Their settings and addresses count as taken. Only AttachDisk reads this field.
	Reserved []string
}

// Chain returns the chain of the disk, top first.
func (s *DiskSpec) Chain() []Image { return append([]Image{s.Image}, s.Backing...) }
