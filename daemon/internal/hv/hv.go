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
	"fmt"
)

// The errors that callers branch on. Every method may return ErrUnavailable (libvirt is
// away, hung or restarting): the outcome of the call is unknown then, so read the state
// again once libvirt is back.
var (
	ErrUnavailable = errors.New("hypervisor unavailable")
	// ErrNotFound: no such domain, disk, pool or pool volume.
	ErrNotFound = errors.New("not found")
	// ErrNotConnected is an ErrNotFound: the pool volume has no device until it is connected, and
	// whether there is one is seen only then.
	ErrNotConnected = fmt.Errorf("%w, since it is not connected", ErrNotFound)
	// ErrNotActive: the call needs a running or paused domain.
	ErrNotActive = errors.New("domain is not active")
	// ErrNoProcess: the domain is active, but its process cannot be found, so it is unknown
	// what it has open.
	ErrNoProcess = errors.New("the process of the domain was not found")
	// ErrProcessEnds: the hypervisor has lost the domain's process in the middle of the call.
	// The domain is off, or soon will be by the hypervisor's word.
	ErrProcessEnds = errors.New("the process of the domain ends")
	// ErrActive: the call needs a domain that is shut off.
	ErrActive = errors.New("domain is active")
	// ErrNotReady: a pivot before the job was ready. Nothing was changed; ask
	// again.
	ErrNotReady = errors.New("block job is not ready")
	// ErrBusy: another block job or domain job is in the way.
	ErrBusy = errors.New("domain or disk is busy")
	// ErrInUse: an image is open elsewhere (in another domain, in another disk, in a tool)
	// in a way that excludes this use. Nothing was changed.
	ErrInUse = errors.New("image is in use")
	// ErrExists: the pool volume is there already, or the target or the
	// guest-visible address of a disk is taken.
	ErrExists = errors.New("already exists")
	// ErrGuarded: the host's hook refused the start of a domain; the error says
	// why in the hook's words. The domain is off.
	ErrGuarded = errors.New("start refused")
	// ErrIncomplete: a file of SaveMemory was not written to its end.
	ErrIncomplete = errors.New("saved memory is incomplete")
	// ErrNoAnswer: nobody knows what a storage has done of what it was asked for, and is doing
	// still.
	ErrNoAnswer = errors.New("the storage has not answered")
	// ErrUnsupported: the hypervisor refuses this disk or this call for good.
	ErrUnsupported = errors.New("unsupported by the hypervisor")
)

// RestoreOptions are the options of RestoreMemory.
type RestoreOptions struct {
	// Chains replace the chains of the disks with these targets.
	Chains map[string][]Image
	Paused bool
	// StartToken is a text that the host's hook finds in the definition of this start only;
	// empty for none. It ends with the process.
	StartToken string
}

// Where says which of the two descriptions of a domain a call is about.
type Where string

// The live domain, and the persistent definition.
const (
	Live   Where = "live"
	Config Where = "config"
)

// Hypervisor is the host's hypervisor. Implementations are safe for concurrent
// use. A domain is named by its UUID, a disk by its target (vda).
type Hypervisor interface {
	// Domains lists every domain, active or defined. If some cannot be read, the list has
	// the others, and the error is an *Unreadable, see Readable.
	Domains(ctx context.Context) ([]Domain, error)
	// Domain reads one domain by UUID. ErrNotFound if there is none.
	Domain(ctx context.Context, id string) (*Domain, error)
	// RunState is Domain for whom it is enough, and who is in a hurry: it reads no definition.
	RunState(ctx context.Context, id string) (RunState, error)
	// TopImage returns the path of the top image of a disk: of the process, or of the persistent
	// definition if the domain is not active. It asks libvirt one question, for callers who look
	// every second. ErrUnavailable also while libvirt owes the answer to an earlier question about
	// the domain.
	TopImage(ctx context.Context, id, target string) (string, error)

	// SetConfigChain makes the persistent definition's disk use this chain, top
	// first, written out in full and terminated; everything else of the disk
	// (address, serial, boot order, unknown elements) stays. Works on active
	// and stopped domains and does not touch the live one. A repeated call is
	// harmless. When it returns nil, the definition was read behind the change and has it.
	SetConfigChain(ctx context.Context, id, target string, chain []Image) error
	// Snapshot puts overlay, a prepared empty qcow2 file whose backing file is
	// the disk's top image, on top of the live chain, atomically: when it
	// returns nil, what was on top gets no more writes. Other disks are left
	// alone. On any error read the domain to see whether it happened.
	Snapshot(ctx context.Context, id, target string, overlay Image) error
	// BlockCopy starts mirroring the live disk into dst, an image that exists.
	// It returns once the job runs. A dst of another size ends the job at once,
	// without an error here: compare the sizes before.
	BlockCopy(ctx context.Context, id, target string, dst Image, opts BlockCopyOptions) error
	// CommitActive starts committing the top image of the live chain into its
	// direct backing image (never deeper), with bytesPerSecond as cap, 0 for none.
	CommitActive(ctx context.Context, id, target string, bytesPerSecond int64) error
	// Job reports the block job on the live disk, nil if there is none. Absence
	// proves nothing: read the chain.
	Job(ctx context.Context, id, target string) (*Job, error)
	// SetJobBandwidth changes the cap of the running job; 0 lifts it.
	SetJobBandwidth(ctx context.Context, id, target string, bytesPerSecond int64) error
	// Pivot ends a ready job by making its target the live disk. ErrNotReady if
	// it is not ready. When it returns nil the hypervisor has closed the images
	// that were left.
	Pivot(ctx context.Context, id, target string) error
	// AbortJob ends the job and stays on the present chain. No job is no error,
	// and a domain that is not active has none. The image that an active commit wrote to may
	// stay open for writing for as long as the process runs.
	AbortJob(ctx context.Context, id, target string) error
	// EndConnections ends the connections that the process of an active domain has to the server of
	// the NBD export at an address, as if the server had gone: requests that have no answer fail,
	// and a job that writes there ends with an error, without its guest's notice. That the process
	// has none is no error. Of the disk that the guest has there itself every request fails from
	// then on.
	EndConnections(ctx context.Context, id, address string) error

	// CanSwitch returns nil if running domains of this host may be switched to these images.
	// ErrUnsupported, with the reason, if the hypervisor would not resume a domain on one of them.
	CanSwitch(ctx context.Context, images ...string) error
	// Suspend pauses a running domain; already paused is no error.
	Suspend(ctx context.Context, id string) error
	// Resume lets a paused domain run; already running is no error. ErrBusy if another domain has
	// the lease of an image of it.
	Resume(ctx context.Context, id string) error
	// PowerOff ends the domain's process at once, as a power cut ends a machine.
	// A domain that is off is no error.
	PowerOff(ctx context.Context, id string) error
	// PowerOn starts a domain that is off; an active one is no error. ErrGuarded if the
	// host's hook refuses the start, ErrInUse if an image is open elsewhere. A managed save
	// image is restored, with the disks of its time.
	PowerOn(ctx context.Context, id string) error
	// Shutdown asks the guest to shut down (ACPI), and returns when it was asked. The guest
	// may take its time, refuse, or not understand. A domain that is off is no error.
	Shutdown(ctx context.Context, id string) error
	// RebootGuest asks the guest to reboot. ErrNotActive if the domain is off.
	RebootGuest(ctx context.Context, id string) error
	// DomainDefinition reads the persistent definition of a domain. ErrUnsupported for a
	// transient domain, and for a domain that depends on more of its host than images,
	// pools and NVRAM (passed-through devices, shared directories, QEMU options, sockets or
	// files of its own, a medium in a drive): it could not be defined on another host, or
	// would let the author of the definition reach into that host.
	DomainDefinition(ctx context.Context, id string) (DomainDefinition, error)
	// ParseDisk reads the disk that DiskDefinition returned, here or on another host.
	ParseDisk(definition string) (Disk, error)
	// DefineDomain defines the persistent domain id by a definition that DomainDefinition
	// returned, here or on another host. These disks replace all disks of the definition
	// that are not CD-ROM or floppy drives, and its NVRAM, if it has any, replaces what is
	// there. ErrExists if there is a domain with this id or name already; ErrUnsupported
	// for a definition that DomainDefinition would not return. On any other error nothing
	// is defined.
	DefineDomain(ctx context.Context, id string, def DomainDefinition, disks []DiskSpec) error
	// UndefineDomain removes the definition of a domain that is off. Images and NVRAM
	// stay. No such domain is no error; ErrActive if it is active, ErrBusy if it
	// has a managed save image, snapshots or checkpoints.
	UndefineDomain(ctx context.Context, id string) error
	// SaveMemory writes the RAM of an active domain into a new file at path and ends its process.
	// When it returns nil, the domain is off, all its disks are closed and the file is whole. The
	// caller makes it durable: a flush in here would take the kernel's one report of a lost write,
	// and the caller's would succeed. If it fails, the domain goes on as it was, and a piece of the
	// file may be left. ErrNotActive if the domain is off, ErrExists if there is a file, ErrBusy
	// while a block job runs, ErrUnsupported for a transient domain, of which nothing would be
	// left.
	SaveMemory(ctx context.Context, id, path string) error
	// SavingMemory reports whether a SaveMemory of the domain is under way, perhaps one whose
	// caller has died: a domain that stood still before looks no different in it. A domain that
	// is off is not being saved.
	SavingMemory(ctx context.Context, id string) (bool, error)
	// SavedDisks reads from a file of SaveMemory the disks that the process of domain id
	// had. ErrIncomplete if the hypervisor has not written the file to its end.
	SavedDisks(ctx context.Context, id, path string) ([]Disk, error)
	// RestoreMemory starts the domain id from a file of SaveMemory. The persistent
	// definition is not touched, and the file stays. ErrActive if it is active,
	// ErrNotFound if it is not defined or had no such disk; ErrGuarded and ErrInUse
	// as PowerOn. On other errors the domain is off and the file as it was.
	RestoreMemory(ctx context.Context, id, path string, opts RestoreOptions) error
	// GrowDisk makes the top image of the live disk sizeBytes large, a multiple of 512, and
	// tells the guest, running or paused. The added bytes read as zeros. A disk that has
	// this size already is no error; a larger one is made smaller, so compare CapacityBytes
	// before. A block device has to be that large already; GrowDisk only makes the process
	// see it. ErrBusy while a block job runs on the disk, ErrUnsupported if the top image is
	// the beginning of a larger one.
	GrowDisk(ctx context.Context, id, target string, sizeBytes int64) error
	// ResetWriteLimit puts the limit that the persistent definition has for the guest's writes,
	// or none, on the live disk. ErrUnsupported if the owner limits reads and writes together.
	ResetWriteLimit(ctx context.Context, id, target string) error
	// LiveWriteLimit returns the limit on the guest's writes to the live disk, in bytes per
	// second, whoever has set it; 0 is none. PutWriteLimit sets it, whatever the definition says:
	// a limit that was read before is put back so. ErrUnsupported as ResetWriteLimit.
	LiveWriteLimit(ctx context.Context, id, target string) (bytesPerSecond int64, err error)
	PutWriteLimit(ctx context.Context, id, target string, bytesPerSecond int64) error
	// DiskStats reads the counters of the live disk.
	DiskStats(ctx context.Context, id, target string) (*DiskStats, error)
	DirtyTracker
	// StoredBitmaps lists the bitmaps that the process of an active domain stores in its images, of
	// all images that it has open, also of those that are marked as inconsistent. QEMU itself is
	// asked: a bitmap that was added while the process runs is in no image until it ends.
	// ErrNotActive if the domain is off.
	StoredBitmaps(ctx context.Context, id string) ([]StoredBitmap, error)
	// OpenFiles lists what the domain's process has open on the images at these paths, in one look:
	// of files and devices by device and inode (or device number), as the kernel says (/proc), and
	// of images of the type network as QEMU itself says, whatever the hypervisor has noted. A path
	// where there is nothing is an error (fs.ErrNotExist), an address never. ErrNotActive if the
	// domain is off. If an active domain's process cannot be found, the error is ErrNoProcess and
	// not an empty list: nobody knows then. Where a process goes on that the hypervisor does not
	// have any more, nobody can ask it: each address counts as open for writing.
	OpenFiles(ctx context.Context, id string, paths ...string) ([]OpenFile, error)
	// Process says which process an active domain has, and what it was started with, as
	// the kernel says (/proc). ErrNotActive if the domain is off; ErrNoProcess if it
	// cannot be found, or if several claim to be it.
	Process(ctx context.Context, id, target string) (Process, error)
	// QEMUVersion is the version of the QEMU that an active domain runs in, which may be
	// another one than About's: a process keeps the program that it was started with. Zero
	// if nobody can tell. ErrNotActive if the domain is off.
	QEMUVersion(ctx context.Context, id string) (Version, error)
	// WriteDeniedBy returns the rule that denies the process of an active domain to write to
	// the image at path, whatever else allows it: no job can write there. It is nil if there
	// is none. ErrNotActive if the domain is off, ErrNoProcess as OpenFiles.
	WriteDeniedBy(ctx context.Context, id, path string) (*Rule, error)
	// QEMUUser returns the user as which the process of a domain runs, or would run; with
	// an empty id, the user of domains that name none. ErrUnsupported if QEMU has no user
	// of its own.
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
	// RoundedBytes returns how large a raw volume of sizeBytes becomes in a pool. One that allots
	// extents is asked by making the smallest volume there, which is deleted again. ErrNotFound
	// as for CreateVolume.
	RoundedBytes(ctx context.Context, pool string, sizeBytes int64) (int64, error)
	// CreateVolume makes a pool volume of exactly sizeBytes, over the first of the backing images
	// if there are any. ErrExists if the name is taken, ErrNotFound if there is no such pool or it
	// is not active.
	CreateVolume(ctx context.Context, pool, name, format string, sizeBytes int64, backing []Image) (*PoolVolume, error)
	// LookupVolume finds a pool volume by name, after refreshing the pool. ErrNotConnected if the
	// pool may have it.
	LookupVolume(ctx context.Context, pool, name string) (*PoolVolume, error)
	// VolumeAt returns the name of the active pool that has a volume with exactly this
	// path: links are not followed. ErrNotFound if there is none.
	VolumeAt(ctx context.Context, path string) (pool string, err error)
	// DeleteVolume deletes a pool volume. Absent is no error.
	DeleteVolume(ctx context.Context, pool, name string) error

	// ExtendVolume makes a volume of a pool that Extends exactly sizeBytes large, a multiple of
	// what RoundedBytes rounds to. The added bytes read as zeros. A volume that has this size
	// already is no error, and none gets smaller. A guest that has it open does not see it before
	// GrowDisk. ErrUnsupported in other pools.
	ExtendVolume(ctx context.Context, pool, name string, sizeBytes int64) error

	// Connectable reports whether what is at path has a device on this host only while it is
	// connected: a pool of a connector has such volumes at paths like this one.
	Connectable(ctx context.Context, path string) (bool, error)
	// ConnectDevice gives the volume at a path that is Connectable its device, and does nothing at
	// any other path. It may be repeated. ErrNotFound if no target has that volume.
	ConnectDevice(ctx context.Context, path string) error
	// DisconnectDevice ends what ConnectDevice has begun; what other volumes share stays with them.
	// It may be repeated. ErrInUse if somebody has the device open.
	DisconnectDevice(ctx context.Context, path string) error

	// FindDeviceCopy finds the storage that has both of these devices. ErrNotFound if none is known
	// to have them.
	FindDeviceCopy(ctx context.Context, src, dst string) (*DeviceCopy, error)
	// CopyDevice has that storage copy n bytes from off on, and returns up to where dst equals src,
	// at least off + 1. A flush of dst makes that durable. ErrUnsupported: the storage copies
	// nothing between these two. ErrNoAnswer, and ErrUnavailable: it may be at work on it, until a
	// later call for dst returns anything else; DeleteVolume, ConnectDevice and DisconnectDevice of
	// dst wait for it. The time of ctx is all that it has.
	CopyDevice(ctx context.Context, c DeviceCopy, off, n int64) (until int64, err error)

	// About returns what the hypervisor says of itself. What it does not say is left out.
	About(ctx context.Context) (About, error)
	// HookRefuses starts a domain that is not defined, has this id and could not run, and
	// reports whether the host's hook has refused the start. It leaves no process of a guest.
	HookRefuses(ctx context.Context, id string) (bool, error)
	// Up reports whether the connection works now.
	Up() bool
	// Events returns a new subscription that starts with EventConnected if the connection
	// is up. A slow reader loses the oldest events, and gets another EventConnected
	// instead. The subscription ends when ctx does.
	Events(ctx context.Context) <-chan Event
}

// ConfinedUser returns the user that the process of a domain runs as (Hypervisor.QEMUUser).
// confined is false if that is libvirt's own user, so that QEMU is not confined by a user.
func ConfinedUser(ctx context.Context, h Hypervisor, id string) (user ProcessUser, confined bool, err error) {
	user, err = h.QEMUUser(ctx, id)
	if errors.Is(err, ErrUnsupported) {
		return user, false, nil
	}
	return user, err == nil, err
}
