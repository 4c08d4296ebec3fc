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
	// SourceNetwork is an export of an NBD server or an RBD image: Path is its address
	// (api.IsNetwork). Of whatever else is reached over a network Path is empty.
	SourceNetwork = "network"
)

// Image is one layer of a chain. Type is the libvirt source type: file, block, network,
// or something that Volferry does not handle (volume, nvme, ...), for
// which Path is empty. Format is what the XML says, never probed; empty if it
// does not say.
type Image struct {
	Type   string
	Format string
	Path   string
	// SliceBytes, if not 0, says that the image is only the first SliceBytes of what is at Path,
	// which is larger: libvirt's <slice type='storage'>. Raw only.
	SliceBytes int64
	// LUKSSecret, if not empty, is the UUID of the libvirt secret with which QEMU opens the
	// image as LUKS, and nothing else is said of its encryption.
	LUKSSecret string
}

// NamedChain is a disk of a domain with the chain that its persistent definition is to name, top
// first.
type NamedChain struct {
	Target string
	Chain  []Image
}

// Mirror is what the live XML says of a copy or an active commit on a disk. Before a pivot
// only Ready counts: a job whose counters are equal may still not be ready.
type Mirror struct {
	Job   JobKind
	Image Image // where it goes; for an active commit the base
	Ready bool
	// Ending: a pivot or an abort is under way, so it is not known yet which chain the disk
	// will be on. Ready is false then.
	Ending bool
}

// CacheUnsafe is the cache mode with which QEMU leaves out the flushes of its guest, and its own.
const CacheUnsafe = "unsafe"

// Disk is one <disk> of a domain.
type Disk struct {
	Target    string // vda
	Bus       string // virtio, scsi, sata, ...
	Device    string // disk, cdrom, floppy, lun
	Serial    string
	Address   string // guest-visible address in one line, e.g. pci:0000:00:05.0
	BootOrder int    // 0 if none
	// Chain is the image chain, top first. Terminated says that the XML states
	// its end with an empty <backingStore/>; libvirt would probe otherwise.
	Chain      []Image
	Terminated bool
	// Mirror is the running copy or active commit, nil if none.
	Mirror *Mirror

	ReadOnly   bool
	Shareable  bool
	Transient  bool
	CopyOnRead bool
	Encrypted  bool // in a way that Image.LUKSSecret does not say
	Slices     bool // some other part of an image than a beginning (SliceBytes) is the source
	// Uncarried names settings for opening the disk's images that would be lost if the disk
	// were made anew with another image: encryption, slices, reservations, and settings
	// that this program does not know. It is empty if there are none. ParseDisk also finds
	// settings that are newer than this program.
	Uncarried string
	// ImageSetting names a setting that belongs to one image, so that libvirt drops it when
	// it replaces the image. Empty if there is none.
	ImageSetting string
	// StartupPolicy is what becomes of a start without the image, empty if not set. A definition
	// with one takes no image at an address.
	StartupPolicy string
	Cache         string // driver attributes, empty if not set
	Discard       string
	// DiscardNoUnref: the disk has discard_no_unref='on', which libvirt allows for qcow2 images
	// only.
	DiscardNoUnref bool
	ErrorPolicy    string
	// ThrottleGroup is the name of the group whose disks share one limit of throughput, empty if it
	// has its own.
	ThrottleGroup string
}

// Top returns the image that takes the guest's writes; the zero Image for an empty drive.
func (d *Disk) Top() Image {
	if len(d.Chain) == 0 {
		return Image{}
	}
	return d.Chain[0]
}

// IsLUKS reports whether QEMU opens an image of the disk with a secret.
func (d *Disk) IsLUKS() bool {
	return slices.ContainsFunc(d.Chain, func(img Image) bool { return img.LUKSSecret != "" })
}

// PastPageCache reports whether QEMU opens the disk past the page cache of the host.
func (d *Disk) PastPageCache() bool { return d.Cache == "none" || d.Cache == "directsync" }

// SamePlace reports whether two disks have the same address in the guest. Equal drive
// addresses mean the same place only on the same kind of bus.
func (d *Disk) SamePlace(other *Disk) bool {
	return d.Address != "" && d.Address == other.Address && (d.Bus == other.Bus || !strings.HasPrefix(d.Address, "drive:"))
}

// DiskStats are the counters of one live disk since its process started. Times are sums
// over all requests.
type DiskStats struct {
	ReadRequests  int64
	ReadBytes     int64
	ReadTime      time.Duration
	WriteRequests int64
	WriteBytes    int64
	WriteTime     time.Duration
	FlushRequests int64
	FlushTime     time.Duration
	// AllocationBytes is the highest offset written in the top image, which for
	// an overlay is how much of the local disk it takes.
	AllocationBytes int64
	// CapacityBytes is the size that the process gives the disk, and that the guest sees.
	// The image may have been made larger without the process.
	CapacityBytes int64
}

// DiskSpec is a disk to attach: a terminated chain of Image over Backing, read and written
// past the host's page cache. The hypervisor chooses the address.
type DiskSpec struct {
	Target    string // vda
	Bus       string // virtio, scsi, ...
	Serial    string
	Image     Image
	Backing   []Image `json:",omitempty"` // top first; empty if the image stands alone
	ReadOnly  bool
	Shareable bool // another guest may have it open as well; raw images only
	BootOrder int  // 0 if none; 1 is what the guest boots from
	// Definition, if not empty, is what DiskDefinition returned for a disk with this
	// Target: the disk is attached exactly as it was, with its address, and the fields
	// above are ignored.
	Definition string
	// Slot, if not empty, is what DiskDefinition returned for a disk. Everything of it
	// stays, address, boot order and unknown elements, except Target, Image, Backing,
	// ReadOnly, Shareable and, if not empty, Serial, which are taken from here. Bus and
	// BootOrder are ignored. The error is ErrUnsupported if the disk has something that
	// hv.Disk lists as Uncarried.
	Slot string
	// NewAddress ignores the address of Slot, and has the hypervisor choose another.
	NewAddress bool
	// NoBootOrder ignores the place that Slot has in the boot order.
	NoBootOrder bool
	// Reserved are what DiskDefinition returned for disks that are not there now and are to
	// come back as they were. What they had counts as taken for this disk, and its address
	// is chosen beside theirs. Only AttachDisk looks at it.
	Reserved []string
}

// Chain returns the chain of the disk, top first.
func (s *DiskSpec) Chain() []Image { return append([]Image{s.Image}, s.Backing...) }
