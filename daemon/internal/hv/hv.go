// SPDX-License-Identifier: Apache-2.0

// Package hv is the hypervisor as Volferry needs it, in Volferry's own nouns:
// domains, disks, image chains, block jobs, pools, events. It imports the
// standard library only. Package libvirt implements it on a real libvirtd,
// package hv/hvtest on an in-memory model, and one conformance suite (also in
// hvtest) holds both to the promises made here.
//
// A call that changes something is not given up when its context ends: it
// returns when its outcome is there, or with ErrUnavailable when nobody can tell.
//
// No call decides anything: each does one thing or reports one fact. Whoever
// acts reads the state first, acts, and reads again, because the outcome of a
// call whose connection broke is unknown until it has been looked at.
package hv

import (
	"context"
	"errors"
	"strings"
	"time"
)

// The errors that callers branch on. Every method may return ErrUnavailable
// (libvirt is away, hung or restarting: the outcome of the call is unknown,
// read the state again once it is back).
var (
	ErrUnavailable = errors.New("hypervisor unavailable")
	// ErrNotFound: no such domain, disk, pool or pool volume.
	ErrNotFound = errors.New("not found")
	// ErrNotActive: the call needs a running or paused domain.
	ErrNotActive = errors.New("domain is not active")
	// ErrNoProcess: the domain is active, and which process it is cannot be found: what
	// it has open is unknown.
	ErrNoProcess = errors.New("the process of the domain was not found")
	// ErrActive: the call needs a domain that is shut off.
	ErrActive = errors.New("domain is active")
	// ErrNotReady: a pivot before the job was ready. Nothing was changed; ask
	// again.
	ErrNotReady = errors.New("block job is not ready")
	// ErrBusy: another block job or domain job is in the way.
	ErrBusy = errors.New("domain or disk is busy")
	// ErrInUse: an image is open elsewhere (in another domain, in another
	// disk, in a tool) in a way that excludes this use of it. Nothing was changed.
	ErrInUse = errors.New("image is in use")
	// ErrExists: the pool volume is there already, or the target or the
	// guest-visible address of a disk is taken.
	ErrExists = errors.New("already exists")
	// ErrGuarded: the host's hook refused the start of a domain; the error says
	// why in the hook's words. The domain is off.
	ErrGuarded = errors.New("start refused")
	// ErrIncomplete: a file of SaveMemory that was not written to its end.
	ErrIncomplete = errors.New("saved memory is incomplete")
	// ErrUnsupported: the hypervisor refuses this disk or this call for good.
	ErrUnsupported = errors.New("unsupported by the hypervisor")
)

// State is the state of a domain.
type State string

// The states of a domain. Everything that is neither running nor off for good
// (saving, dying, suspended by power management, crashed with its process
// still there) is StateOther.
const (
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateStopped State = "stopped"
	StateOther   State = "other"
)

// Active says whether a hypervisor process holds the domain's disks open.
func (s State) Active() bool { return s != StateStopped }

// PauseReason says why a domain is paused.
type PauseReason string

// The pause reasons that matter here: by a caller (us, or a person with
// virsh), by an I/O error, or anything else.
const (
	PauseUser    PauseReason = "user"
	PauseIOError PauseReason = "io_error"
	PauseOther   PauseReason = "other"
)

// Domain is one libvirt domain at one moment.
type Domain struct {
	ID          string // UUID, lower case, with dashes
	Name        string
	State       State
	PauseReason PauseReason // only if paused
	Persistent  bool
	Autostart   bool
	// ManagedSave: starting it would restore an old XML with old paths.
	ManagedSave bool
	// Moved: it is off here because its process went to another host by live
	// migration, where it runs as far as this one knows. libvirt forgets that when it
	// is restarted.
	Moved       bool
	Snapshots   int
	Checkpoints int
	// MemoryBytes is how much RAM the domain may have.
	MemoryBytes int64
	// Occupied: a call on the domain's process is under way, be it that of somebody who
	// has given it up: what it does may still happen.
	Occupied bool
	// Run tells the process from those that the domain had before: each start makes
	// it another one. 0 if the domain is not active.
	Run int
	// Live are the disks of the running process, nil if the domain is not
	// active. Config are the disks of the persistent definition, nil if the
	// domain is transient.
	Live   []Disk
	Config []Disk
}

// LiveDisk returns the live disk with this target (vda), nil if none.
func (d *Domain) LiveDisk(target string) *Disk { return findDisk(d.Live, target) }

// ConfigDisk returns the disk of the persistent definition with this target,
// nil if none.
func (d *Domain) ConfigDisk(target string) *Disk { return findDisk(d.Config, target) }

func findDisk(disks []Disk, target string) *Disk {
	for i := range disks {
		if disks[i].Target == target {
			return &disks[i]
		}
	}
	return nil
}

// Source types of an image.
const (
	SourceFile  = "file"
	SourceBlock = "block"
)

// Image is one layer of a chain. Type is the libvirt source type: file, block,
// or something that Volferry does not handle (network, volume, nvme, ...), for
// which Path is empty. Format is what the XML says, never probed; empty if it
// does not say.
type Image struct {
	Type   string
	Format string
	Path   string
}

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
	Encrypted  bool
	Slices     bool // a storage slice limits the source
	// Uncarried names what says how to open the disk's images and would be lost if
	// the disk were made anew with another image: encryption, slices, reservations,
	// and whatever is not known here. Empty if there is nothing. ParseDisk
	// also finds what is newer than this program.
	Uncarried string
	// ImageSetting names a setting that belongs to one image, so that libvirt drops it
	// when it puts another one in its place. Empty if there is none.
	ImageSetting string
	Cache        string // driver attributes, empty if not set
	Discard      string
	ErrorPolicy  string
}

// Top is the image that takes the guest's writes; the zero Image for an empty
// drive.
func (d *Disk) Top() Image {
	if len(d.Chain) == 0 {
		return Image{}
	}
	return d.Chain[0]
}

// SamePlace says whether two disks are at one address in the guest. That of a drive
// is one on the bus of its kind.
func (d *Disk) SamePlace(other *Disk) bool {
	return d.Address != "" && d.Address == other.Address && (d.Bus == other.Bus || !strings.HasPrefix(d.Address, "drive:"))
}

// JobKind is the kind of a block job.
type JobKind string

// The kinds of block jobs.
const (
	JobCopy         JobKind = "copy"
	JobActiveCommit JobKind = "active-commit"
	JobOther        JobKind = "other"
)

// Mirror is what the live XML says of a copy or an active commit on a disk.
// Ready is the only word to trust before a pivot: a job whose counters are
// equal may still not be ready.
type Mirror struct {
	Job   JobKind
	Image Image // where it goes; for an active commit the base
	Ready bool
	// Ending: a pivot or an abort is under way, so that nobody can say yet which
	// chain the disk will be on. Ready is false then.
	Ending bool
}

// Job is the progress of a block job as the hypervisor reports it. Current
// equal to End on a ready job of a paused domain means that nothing is dirty.
type Job struct {
	Kind                    JobKind
	Current                 int64
	End                     int64
	BandwidthBytesPerSecond int64
}

// DiskStats are counters of one live disk since its process started. Times are
// the sum over all requests.
type DiskStats struct {
	ReadRequests  int64
	ReadBytes     int64
	WriteRequests int64
	WriteBytes    int64
	WriteTime     time.Duration
	FlushRequests int64
	FlushTime     time.Duration
	// AllocationBytes is the highest offset written in the top image, which for
	// an overlay is how much of the local disk it takes.
	AllocationBytes int64
	// CapacityBytes is the size that the process gives the disk, and so what its guest
	// sees: the image may have been made larger behind its back.
	CapacityBytes int64
}

// OpenFile is one open file descriptor of a domain's process on an image.
type OpenFile struct {
	FD       int
	Writable bool
}

// Process is what tells the process of an active domain from every other one that ran
// on this host.
type Process struct {
	ID string
	// Images are those that it was started with.
	Images []string
	// Kept: the live disk in question has a top image that the process was started with
	// and has had open in this disk ever since.
	Kept bool
}

// ProcessUser is a user and its main group by number.
type ProcessUser struct {
	UID uint32
	GID uint32
	// Given: libvirt makes this user the owner of an image before a guest opens it, where the
	// filesystem lets root do that. If not, the user must have been let in by others.
	Given bool
}

// CopyOptions are the options of BlockCopy.
type CopyOptions struct {
	// Shallow copies the top layer only. The caller has just seen that the live
	// chain has a backing image: without one QEMU would quietly do a full copy
	// and zero the target first.
	Shallow bool
	// Synchronous mirrors every guest write before it completes, so that the
	// job converges under any load.
	Synchronous bool
	// BandwidthBytesPerSecond caps the job; 0 is no cap.
	BandwidthBytesPerSecond int64
	// GranularityBytes of the dirty bitmap, a power of two; 0 lets QEMU choose.
	GranularityBytes int
}

// RestoreOptions are the options of RestoreMemory.
type RestoreOptions struct {
	// Chains take the place of those that the disks with these targets had.
	Chains map[string][]Image
	Paused bool
	// StartToken is a text that the host's hook is to find in the definition of this start,
	// and of no other; empty for none. It goes with the process.
	StartToken string
}

// Where is which of the two descriptions of a domain a call means.
type Where string

// The live domain, and the persistent definition.
const (
	Live   Where = "live"
	Config Where = "config"
)

// DiskSpec is a disk to attach: a terminated chain of one image, read and
// written past the host's page cache. The address is the hypervisor's to choose.
type DiskSpec struct {
	Target    string // vda
	Bus       string // virtio, scsi, ...
	Serial    string
	Image     Image
	ReadOnly  bool
	Shareable bool // another guest may have it open as well; raw images only
	BootOrder int  // 0 if none; 1 is what the guest boots from
	// Definition, where not empty, is what DiskDefinition returned of a disk
	// with this Target: it is attached exactly as it was, address and all, and
	// the fields above are not looked at.
	Definition string
	// Slot, where not empty, is what DiskDefinition returned of a disk: everything of
	// it stays, address, boot order and unknown elements, but for Target, Image,
	// ReadOnly, Shareable and, where it is not empty, Serial, which are those of here.
	// Bus and BootOrder are not looked at. ErrUnsupported for what hv.Disk has as
	// Uncarried.
	Slot string
	// NewAddress leaves the address of Slot to whoever has it, and has one chosen.
	NewAddress bool
	// NoBootOrder leaves the place that Slot has in the order of booting to whoever has it.
	NoBootOrder bool
	// Reserved are what DiskDefinition returned of disks that are not there and are
	// to come back as they were: what each of them had is taken for this disk, and
	// its address is chosen beside theirs. Only AttachDisk looks at it.
	Reserved []string
}

// DomainDefinition is everything that a host needs to have a domain that is off:
// its definition, with the secrets in it, and the variables of a UEFI guest (nil
// if it has none).
type DomainDefinition struct {
	Domain    string
	NVRAM     []byte
	Autostart bool
}

// PoolInfo is a storage pool of this host. Path is empty where pools of its type have none.
type PoolInfo struct {
	Name          string
	Type          string
	Path          string
	Active        bool
	CapacityBytes int64
	FreeBytes     int64
}

// PoolVolume is one volume of a pool.
type PoolVolume struct {
	Name          string
	Path          string
	Format        string
	CapacityBytes int64
	Block         bool
}

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	// EventConnected: the connection is up, and events of the time without it
	// are lost: read everything again.
	EventConnected    EventKind = "connected"
	EventDisconnected EventKind = "disconnected"
	// EventLifecycle: a domain was defined, undefined, started, suspended,
	// resumed, stopped, ...; Detail names it.
	EventLifecycle EventKind = "lifecycle"
	// EventIOError: the hypervisor met an I/O error on a disk; Detail is the
	// reason (enospc or empty), Paused says that the domain was stopped by it.
	EventIOError EventKind = "io_error"
	// EventBlockJob: a block job became ready or ended. A hint to look, never
	// a proof.
	EventBlockJob EventKind = "block_job"
	// EventDeviceRemoved: a guest let go of a device, or refused to (Detail is
	// then failed).
	EventDeviceRemoved EventKind = "device_removed"
)

// Event is a hint that something changed. Nothing may be decided from an event
// or from its absence. Path is the image of a job or of an I/O error, and empty
// with the others: which device was removed is seen in Domain.
type Event struct {
	Kind     EventKind
	DomainID string
	Path     string
	Detail   string
	Paused   bool
}

// Hypervisor is the host's hypervisor. Implementations are safe for concurrent
// use. A domain is named by its UUID, a disk by its target (vda).
type Hypervisor interface {
	// Domains lists every domain, active or defined. Those that cannot be read do
	// not take the others with them: the list then has the others, and the error
	// is an *Unreadable, see Readable.
	Domains(ctx context.Context) ([]Domain, error)
	// Domain reads one domain by UUID. ErrNotFound if there is none.
	Domain(ctx context.Context, id string) (*Domain, error)

	// SetConfigChain makes the persistent definition's disk use this chain, top
	// first, written out in full and terminated; everything else of the disk
	// (address, serial, boot order, unknown elements) stays. Works on active
	// and stopped domains and does not touch the live one. A repeated call is
	// harmless.
	SetConfigChain(ctx context.Context, id, target string, chain []Image) error
	// Snapshot puts overlay, a prepared empty qcow2 file whose backing file is
	// the disk's top image, on top of the live chain, atomically: when it
	// returns nil, what was on top gets no more writes. Other disks are left
	// alone. On any error read the domain to see whether it happened.
	Snapshot(ctx context.Context, id, target string, overlay Image) error
	// BlockCopy starts mirroring the live disk into dst, an image that exists.
	// It returns once the job runs. A dst of another size ends the job at once,
	// without an error here: compare the sizes before.
	BlockCopy(ctx context.Context, id, target string, dst Image, opts CopyOptions) error
	// CommitActive starts committing the top image of the live chain into its
	// direct backing image (never deeper), with bandwidthBytesPerSecond as cap, 0 for none.
	CommitActive(ctx context.Context, id, target string, bandwidthBytesPerSecond int64) error
	// Job reports the block job on the live disk, nil if there is none. Absence
	// proves nothing: read the chain.
	Job(ctx context.Context, id, target string) (*Job, error)
	// SetJobBandwidth changes the cap of the running job; 0 lifts it.
	SetJobBandwidth(ctx context.Context, id, target string, bandwidthBytesPerSecond int64) error
	// Pivot ends a ready job by making its target the live disk. ErrNotReady if
	// it is not ready. When it returns nil the hypervisor has closed the images
	// that were left.
	Pivot(ctx context.Context, id, target string) error
	// AbortJob ends the job and stays on the present chain. No job is no error,
	// and a domain that is not active has none.
	AbortJob(ctx context.Context, id, target string) error

	// Suspend pauses a running domain; already paused is no error.
	Suspend(ctx context.Context, id string) error
	// Resume lets a paused domain run; already running is no error.
	Resume(ctx context.Context, id string) error
	// PowerOff ends the domain's process at once, as a power cut ends a machine.
	// A domain that is off is no error.
	PowerOff(ctx context.Context, id string) error
	// PowerOn starts a domain that is off; one that is active is no error. ErrGuarded
	// if the host's hook refuses it, ErrInUse if an image is open elsewhere. A
	// managed save image is restored, with the disks of its time.
	PowerOn(ctx context.Context, id string) error
	// Shutdown asks the guest to shut down (ACPI), and returns when it was asked:
	// it may take its time, refuse or never have heard of it. A domain that is off
	// is no error.
	Shutdown(ctx context.Context, id string) error
	// RebootGuest asks the guest to reboot. ErrNotActive if the domain is off.
	RebootGuest(ctx context.Context, id string) error
	// DomainDefinition reads the persistent definition of a domain. ErrUnsupported for a
	// transient one, and for one that leans on more of its host than images, pools
	// and NVRAM (passed-through devices, shared directories, QEMU options, sockets
	// or files of its own, a medium in a drive): it could not be made on another host, or would let
	// whoever wrote it reach into that host.
	DomainDefinition(ctx context.Context, id string) (DomainDefinition, error)
	// ParseDisk reads what DiskDefinition returned, here or on another host.
	ParseDisk(definition string) (Disk, error)
	// DefineDomain makes the persistent domain id of a definition that DomainDefinition
	// returned, here or on another host, with these disks in the place of all disks
	// of the definition that are no CD-ROM or floppy drives, and its NVRAM, if there
	// is one, replaced. ErrExists if there is a domain with this id or name already;
	// ErrUnsupported for a definition that DomainDefinition would not return. On any
	// other error nothing is defined.
	DefineDomain(ctx context.Context, id string, def DomainDefinition, disks []DiskSpec) error
	// UndefineDomain removes the definition of a domain that is off. Images and NVRAM
	// stay. No such domain is no error; ErrActive if it is active, ErrBusy if it
	// has a managed save image, snapshots or checkpoints.
	UndefineDomain(ctx context.Context, id string) error
	// SaveMemory writes the RAM of an active domain into a new file at path and ends its
	// process; when it returns nil the domain is off, all its disks are closed and
	// the file is durable. If it fails the domain goes on as it was, and a piece of
	// the file may be left. ErrNotActive
	// if it is off, ErrExists if there is a file, ErrBusy while a block job runs,
	// ErrUnsupported for a transient domain, of which nothing would be left.
	SaveMemory(ctx context.Context, id, path string) error
	// SavedDisks reads the disks of the domain id from a file of SaveMemory: those that
	// its process had. ErrIncomplete if the hypervisor has not written it to its end.
	SavedDisks(ctx context.Context, id, path string) ([]Disk, error)
	// RestoreMemory starts the domain id from a file of SaveMemory. The persistent
	// definition is not touched, and the file stays. ErrActive if it is active,
	// ErrNotFound if it is not defined or had no such disk; ErrGuarded and ErrInUse
	// as PowerOn. On other errors the domain is off and the file as it was.
	RestoreMemory(ctx context.Context, id, path string, opts RestoreOptions) error
	// GrowDisk makes the top image of the live disk sizeBytes large, a multiple of 512,
	// and tells the guest, running or paused. What is added reads as zeros. A disk that
	// has this size is no error, and one that is larger is made smaller: compare
	// CapacityBytes before. On a block device, which has to be that large, it only makes
	// the process see so. ErrBusy while a block job runs on the disk.
	GrowDisk(ctx context.Context, id, target string, sizeBytes int64) error
	// SetWriteLimit throttles the guest's writes to the live disk, in bytes per
	// second; 0 lifts it. A lower limit that the domain's owner set stays, and
	// comes back after ours. ErrUnsupported if the owner limits the total.
	SetWriteLimit(ctx context.Context, id, target string, bytesPerSecond int64) error
	// DiskStats reads the counters of the live disk.
	DiskStats(ctx context.Context, id, target string) (*DiskStats, error)
	// OpenFiles lists what the domain's process holds open on the image at path,
	// by device and inode (or device number), as the kernel says (/proc).
	// ErrNotActive if the domain is off. That no process of an active one can be found
	// is ErrNoProcess, and not an empty list: nobody knows then.
	OpenFiles(ctx context.Context, id, path string) ([]OpenFile, error)
	// Process says which process an active domain has, and what it was started with, as
	// the kernel says (/proc). ErrNotActive if the domain is off; ErrNoProcess if it
	// cannot be found, or if several claim to be it.
	Process(ctx context.Context, id, target string) (Process, error)
	// QEMUUser is as which user the process of a domain runs, or would run; of a domain
	// that names none if id is empty. ErrUnsupported where QEMU has no user of its own.
	QEMUUser(ctx context.Context, id string) (ProcessUser, error)

	// AttachDisk puts a disk into the live domain or into the persistent
	// definition. ErrExists if its target, or the address in its Definition or Slot,
	// is taken there; ErrInUse (Live) if the image is open elsewhere, and one of the
	// two writes while the other does not share; ErrNotActive for Live on a domain
	// that is off; ErrUnsupported if its bus takes no disk now, its boot order is
	// taken, or the domain has no such description. A live disk that is there
	// when it returns nil may not be known to the guest yet.
	//
	// The two descriptions choose addresses on their own. A disk that is to keep
	// its address at the next boot is attached to one, and to the other with the
	// DiskDefinition of the first: to the definition first, since that can be
	// taken back without the guest.
	AttachDisk(ctx context.Context, id string, where Where, disk DiskSpec) error
	// DetachDisk takes a disk out of the persistent definition, or asks the
	// running guest to let go of it: that has happened only once the live disk
	// is gone from Domain, which EventDeviceRemoved hints at. A guest may refuse
	// or never answer, and it may be asked again; a paused one answers when it
	// runs; a reset of the machine is an answer too. Disks on a SCSI or USB bus go
	// without the guest. A disk that is not there is no error, and a domain that
	// is not active has no live one. ErrBusy while a block job runs on the live
	// disk, and none may be started until the answer is there: it would be left
	// behind in the process, out of reach and with its images open. The process
	// writes no more when the disk is gone, and closes its images soon after.
	DetachDisk(ctx context.Context, id string, where Where, target string) error
	// DiskDefinition returns the disk as the hypervisor writes it, for
	// DiskSpec.Definition. ErrNotFound if there is no such disk, ErrNotActive for
	// Live on a domain that is off.
	DiskDefinition(ctx context.Context, id string, where Where, target string) (string, error)

	// Pools lists the storage pools.
	Pools(ctx context.Context) ([]PoolInfo, error)
	// CreateVolume makes a pool volume of exactly sizeBytes without backing
	// file. ErrExists if the name is taken, ErrNotFound if there is no such
	// pool or it is not active.
	CreateVolume(ctx context.Context, pool, name, format string, sizeBytes int64) (*PoolVolume, error)
	// LookupVolume finds a pool volume by name, after refreshing the pool.
	LookupVolume(ctx context.Context, pool, name string) (*PoolVolume, error)
	// VolumeAt returns the name of the active pool that has a volume at this path, as
	// the pool names it: links are not followed. ErrNotFound if none has.
	VolumeAt(ctx context.Context, path string) (pool string, err error)
	// DeleteVolume deletes a pool volume. Absent is no error.
	DeleteVolume(ctx context.Context, pool, name string) error

	// Up says whether the connection works now.
	Up() bool
	// Events returns a new subscription that starts with EventConnected if the
	// connection is up. A slow reader loses the oldest events and is told so by
	// another EventConnected. It ends when ctx does.
	Events(ctx context.Context) <-chan Event
}
