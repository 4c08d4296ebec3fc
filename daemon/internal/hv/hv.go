// SPDX-License-Identifier: Apache-2.0

// Package hv is the hypervisor in Volferry's own nouns: domains, disks, image chains, block jobs,
// pools, events. It imports the standard library only. Package libvirt implements it on a real
// libvirtd, package hv/hvtest on an in-memory model. One conformance suite in hvtest checks both.
//
// A call that changes something does not return when its context ends. It returns when its outcome
// is known, or with ErrUnavailable if it cannot be known.
//
// No call decides anything: each does one thing or reports one fact. Callers read the state, act,
// and read it again, because a broken connection leaves the outcome of a call unknown.
package hv

import (
	"context"
	"errors"
	"fmt"
)

// The errors that callers branch on. Every method may return ErrUnavailable (libvirt is down, hung
// or restarting). The outcome of the call is then unknown: read the state again when libvirt is
// back.
var (
	ErrUnavailable = errors.New("hypervisor unavailable")
	// ErrNotFound: the domain, disk, pool or pool volume does not exist.
	ErrNotFound = errors.New("not found")
	// ErrNotConnected is an ErrNotFound: the pool volume has no device until it is connected. Only
	// connecting it shows whether the volume exists.
	ErrNotConnected = fmt.Errorf("%w, since it is not connected", ErrNotFound)
	// ErrNotActive: the call needs a running or paused domain.
	ErrNotActive = errors.New("domain is not active")
	// ErrNoProcess: the domain is active, but its process cannot be found, so its open files are
	// unknown.
	ErrNoProcess = errors.New("the process of the domain was not found")
	// ErrProcessEnds: the hypervisor lost the domain's process during the call. The hypervisor
	// shows the domain as off, now or soon.
	ErrProcessEnds = errors.New("the process of the domain ends")
	// ErrActive: the call needs a domain that is shut off.
	ErrActive = errors.New("domain is active")
	// ErrNotReady: the pivot came before the job was ready. Nothing changed; try again.
	ErrNotReady = errors.New("block job is not ready")
	// ErrBusy: another block job or domain job prevents the call.
	ErrBusy = errors.New("domain or disk is busy")
	// ErrInUse: an image is open elsewhere (in another domain, another disk or a tool) in a way
	// that excludes this use. Nothing changed.
	ErrInUse = errors.New("image is in use")
	// ErrExists: the pool volume exists already, or the target or guest-visible address of a disk
	// is taken.
	ErrExists = errors.New("already exists")
	// ErrGuarded: the host's hook refused the start of a domain; the error has the hook's reason.
	// The domain is off.
	ErrGuarded = errors.New("start refused")
	// ErrIncomplete: a file of SaveMemory was not written completely.
	ErrIncomplete = errors.New("saved memory is incomplete")
	// ErrNoAnswer: it is unknown which part of a request the storage has done, and whether it still
	// works on the request.
	ErrNoAnswer = errors.New("the storage has not answered")
	// ErrUnsupported: the hypervisor permanently refuses this disk or this call.
	ErrUnsupported = errors.New("unsupported by the hypervisor")
)

// RestoreOptions are the options of RestoreMemory.
type RestoreOptions struct {
	// Chains replace the chains of the disks with these targets.
	Chains map[string][]Image
	Paused bool
	// StartToken is a text that the host's hook finds only in the definition of this start; empty
	// for none. It ends with the process.
	StartToken string
}

// Where selects one of the two descriptions of a domain.
type Where string

// Live is the live domain, Config the persistent definition.
const (
	Live   Where = "live"
	Config Where = "config"
)

// Hypervisor is the host's hypervisor. Implementations are safe for concurrent use. A domain is
// named by its UUID, a disk by its target (vda).
type Hypervisor interface {
	// Domains lists every domain, active or defined. If some domains cannot be read, it returns the
	// others, and the error is an *Unreadable; see Readable.
	Domains(ctx context.Context) ([]Domain, error)
	// Domain reads one domain by UUID. It returns ErrNotFound if the domain does not exist.
	Domain(ctx context.Context, id string) (*Domain, error)
	// RunState is a faster Domain that reads no definition.
	RunState(ctx context.Context, id string) (RunState, error)
	// TopImage returns the path of the disk's top image, in the process or, if the domain is not
	// active, in the persistent definition. It makes one libvirt call, for callers that look every
	// second. It also returns ErrUnavailable while libvirt has not answered an earlier call on the
	// domain.
	TopImage(ctx context.Context, id, target string) (string, error)

	// SetConfigChain sets the disk's chain in the persistent definition, top first, written in full
	// and terminated. All other settings of the disk (address, serial, boot order, unknown
	// elements) stay. It works on active and stopped domains and does not change the live domain.
	// It may be repeated. When it returns nil, it has read the definition back with the change.
	SetConfigChain(ctx context.Context, id, target string, chain []Image) error
	// Snapshot atomically puts overlay on top of the live chain. overlay must be an empty qcow2
	// file backed by the disk's top image. When Snapshot returns nil, the previous top image gets
	// no more writes. Other disks do not change. After an error read the domain to learn the
	// outcome.
	Snapshot(ctx context.Context, id, target string, overlay Image) error
	// BlockCopy starts to mirror the live disk into dst, an existing image. It returns when the job
	// runs. A dst of another size ends the job at once, without an error here: compare the sizes
	// before.
	BlockCopy(ctx context.Context, id, target string, dst Image, opts BlockCopyOptions) error
	// CommitActive starts to commit the top image of the live chain into its direct backing image,
	// never deeper. bytesPerSecond caps the job; 0 means no cap.
	CommitActive(ctx context.Context, id, target string, bytesPerSecond int64) error
	// Job returns the block job on the live disk, nil if there is none. Nil proves nothing: read
	// the chain.
	Job(ctx context.Context, id, target string) (*Job, error)
	// SetJobBandwidth changes the cap of the running job; 0 removes it.
	SetJobBandwidth(ctx context.Context, id, target string, bytesPerSecond int64) error
	// Pivot ends a ready job and makes its target the live disk. It returns ErrNotReady if the job
	// is not ready. When it returns nil, the hypervisor has closed the images that the disk left.
	Pivot(ctx context.Context, id, target string) error
	// AbortJob ends the job; the disk stays on its present chain. It returns nil if there is no job
	// or the domain is not active. The target of an active commit may stay open for writing for as
	// long as the process runs.
	AbortJob(ctx context.Context, id, target string) error
	// EndConnections closes the connections of an active domain's process to the server of the NBD
	// export at an address, as if the server were down. Unanswered requests fail, and a job that
	// writes there ends with an error, unnoticed by its guest. It returns nil if there are no
	// connections. If the guest has a disk on the export itself, every later request of that disk
	// fails.
	EndConnections(ctx context.Context, id, address string) error

	// CanSwitch returns nil if running domains of this host may be switched to these images. It
	// returns ErrUnsupported, with the reason, if the hypervisor would not resume a domain on one
	// of them.
	CanSwitch(ctx context.Context, images ...string) error
	// Suspend pauses a running domain. It returns nil if the domain is paused already.
	Suspend(ctx context.Context, id string) error
	// Resume resumes a paused domain. It returns nil if the domain runs already, and ErrBusy if
	// another domain has the lease of one of its images.
	Resume(ctx context.Context, id string) error
	// PowerOff ends the domain's process at once, like a power cut. It returns nil if the domain is
	// off.
	PowerOff(ctx context.Context, id string) error
	// PowerOn starts a domain. It returns nil if the domain is active, ErrGuarded if the host's
	// hook refuses the start, and ErrInUse if an image is open elsewhere. It restores a managed
	// save image, with the disks of the save.
	PowerOn(ctx context.Context, id string) error
	// Shutdown sends the guest a shutdown request (ACPI) and does not wait for the shutdown. The
	// guest may take its time, refuse, or not understand. It returns nil if the domain is off.
	Shutdown(ctx context.Context, id string) error
	// RebootGuest sends the guest a reboot request. It returns ErrNotActive if the domain is off.
	RebootGuest(ctx context.Context, id string) error
	// DomainDefinition reads the persistent definition of a domain. It returns ErrUnsupported for a
	// transient domain, and for a domain that depends on more of its host than images, pools and
	// NVRAM (passed-through devices, shared directories, QEMU options, sockets or files of its own,
	// a medium in a drive). Such a domain could not be defined on another host, or would give the
	// author of the definition access to that host.
	DomainDefinition(ctx context.Context, id string) (DomainDefinition, error)
	// ParseDisk reads a disk that DiskDefinition returned, on this host or another.
	ParseDisk(definition string) (Disk, error)
	// DefineDomain defines the persistent domain id from a definition that DomainDefinition
	// returned, on this host or another. disks replace all disks of the definition except CD-ROM
	// and floppy drives. The definition's NVRAM, if any, replaces the existing NVRAM. It returns
	// ErrExists if a domain with this id or name exists, and ErrUnsupported for a definition that
	// DomainDefinition would not return. On any other error nothing is defined.
	DefineDomain(ctx context.Context, id string, def DomainDefinition, disks []DiskSpec) error
	// UndefineDomain removes the definition of a domain that is off. Images and NVRAM stay. It
	// returns nil if the domain does not exist, ErrActive if it is active, and ErrBusy if it has a
	// managed save image, snapshots or checkpoints.
	UndefineDomain(ctx context.Context, id string) error
	// SaveMemory writes the RAM of an active domain into a new file at path and ends its process.
	// When it returns nil, the domain is off, all its disks are closed and the file is complete.
	// The caller must flush the file. SaveMemory does not, because the kernel reports a lost write
	// only once. If SaveMemory fails, the domain continues, and a part of the file may remain. It
	// returns ErrNotActive if the domain is off, ErrExists if the file exists, ErrBusy while a
	// block job runs, and ErrUnsupported for a transient domain, which would be lost.
	SaveMemory(ctx context.Context, id, path string) error
	// SavingMemory reports whether a SaveMemory of the domain is under way. Its caller may have
	// died. A domain that was paused before looks the same during the save. It returns false for a
	// domain that is off.
	SavingMemory(ctx context.Context, id string) (bool, error)
	// SavedDisks reads the disks of domain id's process from a file of SaveMemory. It returns
	// ErrIncomplete if the hypervisor has not written the file completely.
	SavedDisks(ctx context.Context, id, path string) ([]Disk, error)
	// RestoreMemory starts the domain id from a file of SaveMemory. The persistent definition does
	// not change, and the file stays. It returns ErrActive if the domain is active, ErrNotFound if
	// the domain is not defined or lacks a named disk, and ErrGuarded and ErrInUse as PowerOn does.
	// On other errors the domain is off and the file unchanged.
	RestoreMemory(ctx context.Context, id, path string, opts RestoreOptions) error
	// GrowDisk makes the top image of the live disk sizeBytes large, a multiple of 512, and
	// notifies the guest, running or paused. The added bytes read as zeros. It returns nil if the
	// disk has this size. It would shrink a larger disk, so compare CapacityBytes before. A block
	// device must have the size already; GrowDisk only makes the process see it. It returns ErrBusy
	// while a block job runs on the disk, and ErrUnsupported if the top image is the beginning of a
	// larger one.
	GrowDisk(ctx context.Context, id, target string, sizeBytes int64) error
	// ResetWriteLimit sets the live disk's limit on guest writes to the limit of the persistent
	// definition, or removes it if the definition has none. It returns ErrUnsupported if the owner
	// limits reads and writes together.
	ResetWriteLimit(ctx context.Context, id, target string) error
	// LiveWriteLimit returns the limit on the guest's writes to the live disk, in bytes per second,
	// whichever program has set it; 0 means none. PutWriteLimit sets the limit regardless of the
	// definition, to restore a limit that the caller has read. Both return ErrUnsupported as
	// ResetWriteLimit does.
	LiveWriteLimit(ctx context.Context, id, target string) (bytesPerSecond int64, err error)
	PutWriteLimit(ctx context.Context, id, target string, bytesPerSecond int64) error
	// DiskStats reads the counters of the live disk.
	DiskStats(ctx context.Context, id, target string) (*DiskStats, error)
	DirtyTracker
	// StoredBitmaps lists the bitmaps that the process of an active domain stores in its open
	// images, including inconsistent ones. It queries QEMU: a bitmap that the process has added is
	// in no image until the process ends. It returns ErrNotActive if the domain is off.
	StoredBitmaps(ctx context.Context, id string) ([]StoredBitmap, error)
	// OpenFiles lists the open files of the domain's process on the images at these paths, in one
	// look. Files and devices are compared by device and inode (or device number) as /proc shows
	// them; images of type network come from QEMU. The hypervisor's own records are ignored. An
	// absent path is an error (fs.ErrNotExist), an absent address never. It returns ErrNotActive if
	// the domain is off, and ErrNoProcess, not an empty list, if an active domain's process cannot
	// be found. If the hypervisor does not know a running process of the domain, QEMU cannot be
	// queried, and each address counts as open for writing.
	OpenFiles(ctx context.Context, id string, paths ...string) ([]OpenFile, error)
	// Process returns the process of an active domain and its start arguments, from /proc. It
	// returns ErrNotActive if the domain is off, and ErrNoProcess if the process cannot be found or
	// several processes claim to be it.
	Process(ctx context.Context, id, target string) (Process, error)
	// QEMUVersion returns the QEMU version of an active domain's process. It may differ from
	// About's: a process keeps the program that started it. It returns zero if the version is
	// unknown, and ErrNotActive if the domain is off.
	QEMUVersion(ctx context.Context, id string) (Version, error)
	// WriteDeniedBy returns the rule that denies the process of an active domain to write to the
	// image at path, even if another rule allows it. No job can write there. It returns nil if
	// there is no such rule, ErrNotActive if the domain is off, and ErrNoProcess as OpenFiles does.
	WriteDeniedBy(ctx context.Context, id, path string) (*Rule, error)
	// QEMUUser returns the user of a domain's process, present or future. An empty id means a
	// domain that names no user. It returns ErrUnsupported if QEMU has no user of its own.
	QEMUUser(ctx context.Context, id string) (ProcessUser, error)

	// AttachDisk adds a disk to the live domain or to the persistent definition. It returns
	// ErrExists if its target, or the address in its Definition or Slot, is taken there; ErrInUse
	// (Live) if the image is open elsewhere, and one of the two writes while the other does not
	// share; ErrNotActive for Live on a domain that is off; ErrUnsupported if its bus takes no disk
	// now, its boot order is taken, or the domain has no such description. When it returns nil, the
	// guest may not have noticed a live disk yet.
	//
	// The two descriptions choose addresses independently. To keep a disk's address at the next
	// boot, attach it to one description, and to the other with the DiskDefinition of the first.
	// Begin with the definition, because a disk can be removed from it without the guest.
	AttachDisk(ctx context.Context, id string, where Where, disk DiskSpec) error
	// DetachDisk removes a disk from the persistent definition, or requests the running guest to
	// release it. The guest has released the disk only when Domain does not show it any more;
	// EventDeviceRemoved hints at that. A guest may refuse or never answer; the request may be
	// repeated. A paused guest answers when it runs; a machine reset is an answer too. Disks on a
	// SCSI or USB bus are removed without the guest. It returns nil if the disk is absent (an
	// inactive domain has no live disk), and ErrBusy while a block job runs on the live disk. Start
	// no job until the guest has answered: the job would stay in the process, out of reach, with
	// its images open. When the disk is gone, the process writes no more, and soon closes its
	// images.
	DetachDisk(ctx context.Context, id string, where Where, target string) error
	// DiskDefinition returns the disk in the hypervisor's format, for DiskSpec.Definition. It
	// returns ErrNotFound if there is no such disk, and ErrNotActive for Live on a domain that is
	// off.
	DiskDefinition(ctx context.Context, id string, where Where, target string) (string, error)

	// Pools lists the storage pools.
	Pools(ctx context.Context) ([]PoolInfo, error)
	// RoundedBytes returns the size that a raw volume of sizeBytes gets in a pool. A pool with
	// extents is tested: RoundedBytes makes the smallest volume there and deletes it. It returns
	// ErrNotFound as CreateVolume does.
	RoundedBytes(ctx context.Context, pool string, sizeBytes int64) (int64, error)
	// CreateVolume makes a pool volume of exactly sizeBytes, over the first of the backing images
	// if there are any. It returns ErrExists if the name is taken, and ErrNotFound if the pool does
	// not exist or is not active.
	CreateVolume(ctx context.Context, pool, name, format string, sizeBytes int64, backing []Image) (*PoolVolume, error)
	// LookupVolume finds a pool volume by name, after a refresh of the pool. It returns
	// ErrNotConnected if the pool may have the volume.
	LookupVolume(ctx context.Context, pool, name string) (*PoolVolume, error)
	// VolumeAt returns the name of the active pool that has a volume with exactly this path,
	// without following links. It returns ErrNotFound if there is none.
	VolumeAt(ctx context.Context, path string) (pool string, err error)
	// DeleteVolume deletes a pool volume. It returns nil if the volume does not exist.
	DeleteVolume(ctx context.Context, pool, name string) error

	// ExtendVolume makes a volume of a pool with Extends exactly sizeBytes large, a multiple of the
	// unit of RoundedBytes. The added bytes read as zeros. It returns nil if the volume has this
	// size, and never shrinks one. A guest with the volume open does not see the new size before
	// GrowDisk. It returns ErrUnsupported in other pools.
	ExtendVolume(ctx context.Context, pool, name string, sizeBytes int64) error

	// Connectable reports whether the volume at path has a device on this host only while it is
	// connected: a connector's pool has such volumes at paths like this one.
	Connectable(ctx context.Context, path string) (bool, error)
	// ConnectDevice connects the device of the volume at a Connectable path, and does nothing at
	// any other path. It may be repeated. It returns ErrNotFound if no target has the volume.
	ConnectDevice(ctx context.Context, path string) error
	// DisconnectDevice undoes ConnectDevice, but keeps everything that other volumes share. It may
	// be repeated. It returns ErrInUse if a process has the device open.
	DisconnectDevice(ctx context.Context, path string) error

	// FindDeviceCopy finds the storage that has both devices. It returns ErrNotFound if no known
	// storage has them.
	FindDeviceCopy(ctx context.Context, src, dst string) (*DeviceCopy, error)
	// CopyDevice has that storage copy n bytes from off. It returns up to where dst equals src, at
	// least off + 1. A flush of dst makes the range durable. ErrUnsupported: the storage cannot
	// copy between these two. ErrNoAnswer and ErrUnavailable: the storage may still work on the
	// range, until a later call for dst returns anything else; DeleteVolume, ConnectDevice and
	// DisconnectDevice of dst wait for it. The deadline of ctx is its only time limit.
	CopyDevice(ctx context.Context, c DeviceCopy, off, n int64) (until int64, err error)

	// About returns the hypervisor's description of itself. Unknown fields stay empty.
	About(ctx context.Context) (About, error)
	// HookRefuses tries to start an undefined domain with this id that could not run, and reports
	// whether the host's hook refused the start. It leaves no guest process.
	HookRefuses(ctx context.Context, id string) (bool, error)
	// Up reports whether the connection works now.
	Up() bool
	// Events returns a new subscription. It starts with EventConnected if the connection is up. A
	// slow reader loses the oldest events, and gets another EventConnected instead. The
	// subscription ends when ctx ends.
	Events(ctx context.Context) <-chan Event
}

// ConfinedUser returns the user of a domain's process (Hypervisor.QEMUUser). confined is false if
// it is libvirt's own user, so that the user does not confine QEMU.
func ConfinedUser(ctx context.Context, h Hypervisor, id string) (user ProcessUser, confined bool, err error) {
	user, err = h.QEMUUser(ctx, id)
	if errors.Is(err, ErrUnsupported) {
		return user, false, nil
	}
	return user, err == nil, err
}
