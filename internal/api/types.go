// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"time"
)

// SchemaVersion is the version of every JSON document, the value of
// "schema_version" in what `volferryctl -o json` prints and the API answers.
const SchemaVersion = 1

// Location says where the bytes of a volume are. Path is always set once the location
// exists; Pool and Name are empty for a location given by an absolute path. SizeBytes is
// the exact virtual size.
type Location struct {
	Pool string `json:"pool,omitempty"`
	Name string `json:"name,omitempty"`
	// Path is absolute, or the address of an NBD export (NBDExport.URI) or of an RBD image
	// (RBDImage.URI).
	Path      string `json:"path"`
	Format    Format `json:"format"`
	SizeBytes int64  `json:"size_bytes"`
	// Backing are the base images of a linked clone, as they were when it became a volume.
	Backing Backing `json:"backing,omitempty" needs:"base_images"`
	// ImageBytes is the size of what is at Path, if the volume is only the
	// beginning of it; 0 if the volume is all of it. Raw only.
	ImageBytes int64 `json:"image_bytes,omitempty" needs:"slices"`
	// LUKSSecret is the UUID of the libvirt secret that has the passphrase, if the image is a
	// LUKS container that QEMU opens for the guest; empty if it is none. SizeBytes is the size
	// of the container, of which the guest sees all but the header. Raw only.
	LUKSSecret string `json:"luks_secret,omitempty" needs:"luks"`
	// Identity is what the device at Path said of itself when it became the volume's (the WWID of a
	// LUN, the UUID of a map or namespace), or the id of the RBD image; empty for a file, an
	// export, and a device that says nothing.
	Identity string `json:"identity,omitempty" needs:"-"`
}

// IsLUKS reports whether QEMU encrypts what is at the path.
func (l Location) IsLUKS() bool { return l.LUKSSecret != "" }

// IsSlice reports whether the volume is only the beginning of what is at its path.
func (l Location) IsSlice() bool { return l.ImageBytes != 0 }

// WholeBytes is the size of what is at the path, the volume and what is behind it.
func (l Location) WholeBytes() int64 { return max(l.SizeBytes, l.ImageBytes) }

// VolumeBytes returns the size of a volume at this location, given the size of the image
// that was found there. The bytes behind a slice do not belong to the volume.
func (l Location) VolumeBytes(imageBytes int64) int64 {
	if l.IsSlice() && imageBytes > l.SizeBytes {
		return l.SizeBytes
	}
	return imageBytes
}

// InstanceState is the state of an instance.
type InstanceState string

// The states of an instance.
const (
	InstanceRunning          InstanceState = "running"
	InstancePaused           InstanceState = "paused"
	InstanceAsleep           InstanceState = "asleep"  // the guest has gone to sleep (S3)
	InstanceCrashed          InstanceState = "crashed" // the guest has crashed, and its process is kept
	InstanceStopped          InstanceState = "stopped"
	InstanceShelved          InstanceState = "shelved"
	InstanceShelvedOffloaded InstanceState = "shelved_offloaded"
	InstanceError            InstanceState = "error"
)

// Standstill reports whether a guest in this state stands still of its own accord. The registry's
// rules take it for paused.
func (s InstanceState) Standstill() bool { return s == InstanceAsleep || s == InstanceCrashed }

// OnShelf reports whether the registry has an instance in this state on the shelf.
func (s InstanceState) OnShelf() bool {
	return s == InstanceShelved || s == InstanceShelvedOffloaded
}

// VolumeStatus is the status of a volume.
type VolumeStatus string

// The statuses of a volume.
const (
	VolumeCreating  VolumeStatus = "creating"
	VolumeAvailable VolumeStatus = "available"
	VolumeReserved  VolumeStatus = "reserved"
	VolumeInUse     VolumeStatus = "in-use"
	VolumeDeleting  VolumeStatus = "deleting"
	VolumeError     VolumeStatus = "error"
	// VolumeResizing: an op makes the volume larger. Nothing else is done to it until that
	// op is over.
	VolumeResizing VolumeStatus = "resizing"
)

// AttachmentState is the state of an attachment.
type AttachmentState string

// The states of an attachment.
const (
	AttachmentReserved  AttachmentState = "reserved"
	AttachmentAttaching AttachmentState = "attaching"
	AttachmentAttached  AttachmentState = "attached"
	AttachmentDetaching AttachmentState = "detaching"
	AttachmentError     AttachmentState = "error"
)

// MigrationState is the state of a migration.
type MigrationState string

// The states of a migration. Completed, cancelled and error are final: error
// means that start failed and was undone, so that nothing is left of it. A copy
// or a complete that fails leaves the migration where it was, with Error set,
// to be tried again or cancelled. Needs_operator means that Volferry will not
// touch it unasked.
const (
	MigrationStarting      MigrationState = "starting"
	MigrationStarted       MigrationState = "started"
	MigrationCopying       MigrationState = "copying"
	MigrationCopied        MigrationState = "copied"
	MigrationCompleting    MigrationState = "completing"
	MigrationCompleted     MigrationState = "completed"
	MigrationCancelling    MigrationState = "cancelling"
	MigrationCancelled     MigrationState = "cancelled"
	MigrationError         MigrationState = "error"
	MigrationNeedsOperator MigrationState = "needs_operator"
	MigrationOrphaned      MigrationState = "orphaned"
)

// Final reports whether a migration in this state is over and holds no lock.
func (s MigrationState) Final() bool {
	return s == MigrationCompleted || s == MigrationCancelled || s == MigrationError
}

// Host is a hypervisor as the registry knows it. Epoch is its fencing token.
type Host struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Status     string     `json:"status" enum:"up,suspect,fenced"`
	Epoch      int64      `json:"epoch"`
	Version    string     `json:"version,omitempty"`
	LastSeenAt *time.Time `json:"last_seen_at,omitempty"`
	CreatedAt  time.Time  `json:"created_at"`
	// Behind says that the host has not come back since a restore of the registry was
	// accepted. It may have volumes of which the registry does not know that it has them.
	Behind bool `json:"behind,omitempty"`
	// Mark is set in the answer to a report.
	Mark *RegistryMark `json:"mark,omitempty"`
	// ReportDigest is set in the answer to a report. The host may send it as
	// HostReport.Digest in its next report, if nothing has changed.
	ReportDigest string `json:"report_digest,omitempty"`
	// ReportEverySeconds is set in the answer to a report: how often the registry wants to hear
	// of the host while there is nothing new.
	ReportEverySeconds int `json:"report_every_seconds,omitempty"`
	// Protocol is the protocol that the host's daemon speaks, 0 until the host has reported
	// to this run of the registry. Lacks are the registry's features that the daemon does
	// not have.
	Protocol int      `json:"protocol,omitempty"`
	Lacks    []string `json:"lacks,omitempty"`
}

// Pool is a storage pool of one host, or of several if Shared is set: all hosts with a pool
// of this name then see the same bytes. Multiattach says that several guests at once may
// have a volume of the pool open. The registry sets Host and UpdatedAt; a host's report
// need not have them.
type Pool struct {
	Name          string    `json:"name"`
	Host          string    `json:"host" schema:"optional"`
	Type          string    `json:"type"`
	Path          string    `json:"path,omitempty"`
	Shared        bool      `json:"shared"`
	Multiattach   bool      `json:"multiattach"`
	Active        bool      `json:"active"`
	CapacityBytes int64     `json:"capacity_bytes"`
	FreeBytes     int64     `json:"free_bytes"`
	UpdatedAt     time.Time `json:"updated_at" schema:"optional"`
	// Uses are the files below Path that domains of the host need and that are no volumes of
	// attachments, MaxPoolUses at most.
	Uses []PoolUse `json:"uses,omitempty" needs:"-"`
}

// VolumeType is a named set of properties. If Pools is empty, every pool is allowed.
type VolumeType struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Multiattach bool      `json:"multiattach"`
	Pools       []string  `json:"pools"`
	CreatedAt   time.Time `json:"created_at"`
}

// Volume is a disk's content. Its ID never changes when its bytes move; its fencing token
// Generation does.
type Volume struct {
	ID          string       `json:"id"`
	Name        string       `json:"name"`
	Status      VolumeStatus `json:"status"`
	SizeBytes   int64        `json:"size_bytes"`
	Type        string       `json:"type"`
	Multiattach bool         `json:"multiattach"`
	Bootable    bool         `json:"bootable"`
	Generation  int64        `json:"generation"`
	Host        string       `json:"host,omitempty"`
	Location    Location     `json:"location"`
	Attachments []Attachment `json:"attachments"`
	MigrationID string       `json:"migration_id,omitempty"`
	// ResizeOpID is the op that makes the volume larger, empty if there is none.
	ResizeOpID string `json:"resize_op_id,omitempty"`
	// Adopted says that what the volume holds was there before it became a volume: it was
	// given into care, and is not deleted unasked. It stays true when the volume moves, as
	// the copy is the data that was given, and may be the only one; a source that a move
	// has left belongs to no volume, and is nobody's to delete by way of the volume.
	Adopted bool `json:"adopted"`
	// SizeChangedAt is when the size was last seen to have changed, nil if it never has.
	SizeChangedAt *time.Time `json:"size_changed_at,omitempty"`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
}

// ReleasedSource is an image that a volume has left by a move and that was kept. It belongs to
// no volume.
type ReleasedSource struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	VolumeName  string   `json:"volume_name"`
	Host        string   `json:"host"`
	Location    Location `json:"location"`
	// AllocatedBytes is how much of the disk a file takes; 0 for a device.
	AllocatedBytes int64     `json:"allocated_bytes"`
	ReleasedAt     time.Time `json:"released_at"`
	// Written says that something has written to it since the volume left it.
	Written bool `json:"written,omitempty"`
	// WrittenUnknown says why nobody can tell whether it was written since, empty if that is known.
	WrittenUnknown string `json:"written_unknown,omitempty"`
	// RunBy is the name of a domain of its host whose running guest has it as a disk, empty
	// if there is none.
	RunBy string `json:"run_by,omitempty"`
	// VolumePath is where the volume is now, empty if it is not known.
	VolumePath string `json:"volume_path,omitempty"`
	// Unrecorded says that the registry does not know the move, and has the volume here still:
	// VolumePath is by the journal of the host then.
	Unrecorded bool `json:"unrecorded,omitempty" needs:"-"`
	// Blocked says why it is not deleted if that is asked for now; empty if it would be.
	Blocked string `json:"blocked,omitempty"`
}

// Unheld reports whether no host has an instance with the volume: it is attached to no
// instance, or only to instances that are shelved_offloaded. No guest can have it open
// then.
func (v *Volume) Unheld() bool {
	return !slices.ContainsFunc(v.Attachments, func(a Attachment) bool { return a.Host != "" })
}

// Attachment is one volume at one instance. The names are for people, and a host leaves
// them out of some answers.
type Attachment struct {
	ID           string `json:"id"`
	VolumeID     string `json:"volume_id"`
	VolumeName   string `json:"volume_name,omitempty"`
	InstanceID   string `json:"instance_id"`
	InstanceName string `json:"instance_name,omitempty"`
	Host         string `json:"host"`
	DiskAttachment
	State     AttachmentState `json:"state"`
	Location  Location        `json:"location"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
}

// BlockDeviceMapping is a slot of an instance. VolumeID and AttachmentID are
// nil for an empty slot and for an ephemeral disk, which is no volume.
type BlockDeviceMapping struct {
	Device       string  `json:"device"`
	BootIndex    *int    `json:"boot_index"`
	VolumeID     *string `json:"volume_id"`
	AttachmentID *string `json:"attachment_id"`
	// Mode is the mode of the attachment, empty if the slot has none.
	Mode Mode `json:"mode,omitempty"`
	// Note says why the disk in the slot is not a volume.
	Note string `json:"note,omitempty"`
	// Slot describes the last disk of an empty slot, so that a volume can be put there
	// again.
	Slot *SlotDefinition `json:"slot,omitempty"`
}

// SlotDefinition describes the disk that an empty slot had last, so that a volume can be
// put there with the same settings.
type SlotDefinition struct {
	// Disk is the disk that was there, in the hypervisor's own words: target, bus,
	// address, boot order and whatever else the definition of the domain had.
	Disk string `json:"disk"`
	// SerialOfVolume says that the disk's serial was the id of its volume, so the next
	// volume's own id will be the serial. Otherwise the serial belongs to the slot and
	// stays.
	SerialOfVolume bool `json:"serial_of_volume"`
}

// Instance is a libvirt domain under Volferry's care; its ID is the domain's UUID.
// Host is empty for one that is shelved_offloaded.
type Instance struct {
	ID    string        `json:"id"`
	Name  string        `json:"name"`
	Host  string        `json:"host"`
	State InstanceState `json:"state"`
	// LockReason is set while the instance is locked, by an operator or by the migration
	// LockedBy.
	Locked     bool   `json:"locked"`
	LockReason string `json:"lock_reason,omitempty"`
	LockedBy   string `json:"locked_by,omitempty"`
	// Note says what its host has found to differ from what Volferry left: the domain is
	// gone, or has other disks than the registry knows.
	Note string `json:"note,omitempty"`
	// Differs says that the disks of its domain are not where its volumes are.
	Differs             bool                 `json:"differs,omitempty" needs:"-"`
	BlockDeviceMappings []BlockDeviceMapping `json:"block_device_mappings"`
	// DetachedDisks describe the disks of volumes that were detached from the instance, so
	// that each can come back with its settings. Lists leave them out.
	DetachedDisks []DetachedDisk `json:"detached_disks,omitempty"`
	CreatedAt     time.Time      `json:"created_at"`
	UpdatedAt     time.Time      `json:"updated_at"`
}

// DetachedDisk describes the disk that a volume was at an instance when it was last
// detached.
type DetachedDisk struct {
	VolumeID string         `json:"volume_id"`
	Device   string         `json:"device"`
	Slot     SlotDefinition `json:"slot"`
}

// Detached returns the disk that the volume was when it was last detached from the
// instance, nil if that is not known.
func (i *Instance) Detached(volumeID string) *DetachedDisk {
	for n := range i.DetachedDisks {
		if i.DetachedDisks[n].VolumeID == volumeID {
			return &i.DetachedDisks[n]
		}
	}
	return nil
}

// StallMS is how long the guest could not complete a write, in milliseconds, as the host
// measured it. A value is nil if that phase has not come yet, or if there was no guest.
type StallMS struct {
	Start  *float64 `json:"start"`
	Switch *float64 `json:"switch"`
	// Job is for the beginning of a block job; nil if the guest went on meanwhile, as it does
	// unless its QEMU may lose a write then.
	Job *float64 `json:"job,omitempty" needs:"-"`
}

// Migration is the move of a volume from Src to Dst.
type Migration struct {
	ID                 string         `json:"id"`
	VolumeID           string         `json:"volume_id"`
	VolumeName         string         `json:"volume_name,omitempty"`
	InstanceID         string         `json:"instance_id,omitempty"`
	Host               string         `json:"host"`
	SrcAttachmentID    string         `json:"src_attachment_id,omitempty"`
	DstAttachmentID    string         `json:"dst_attachment_id,omitempty"`
	Src                Location       `json:"src"`
	Dst                Location       `json:"dst"`
	Method             string         `json:"method" enum:"overlay,offline,mirror,save"`
	State              MigrationState `json:"state"`
	Phase              string         `json:"phase"`
	BytesTotal         int64          `json:"bytes_total"`
	BytesDone          int64          `json:"bytes_done"`
	RateBytesPerSecond int64          `json:"rate_bytes_per_second"`
	// BandwidthBytesPerSecond is the operator's cap on the copy; 0 is none.
	BandwidthBytesPerSecond int64 `json:"bandwidth_bytes_per_second"`
	// Pace is as in CopyOptions. Pacing says in words what is done for the guest now, and why;
	// it is empty where the copy is not held back.
	Pace         string `json:"pace,omitempty" enum:"off,gentle,full" needs:"-"`
	Pacing       string `json:"pacing,omitempty" needs:"-"`
	OverlayBytes int64  `json:"overlay_bytes"`
	// GuestPaused says why the guest stands still, if an I/O error has paused it while its
	// writes go to the overlay. Mostly the overlay has no room left.
	GuestPaused string `json:"guest_paused,omitempty"`
	// GuestNotResumed says why the guest stands still, if the migration has paused it and libvirt
	// refuses to resume it.
	GuestNotResumed string `json:"guest_not_resumed,omitempty" needs:"-"`
	// ChainProblem is what somebody else has done to the images of the disk, nil if nothing was
	// seen.
	ChainProblem *ChainProblem `json:"chain_problem,omitempty" needs:"-"`
	// GuestThrottled says how fast the guest may write, and why, while the room for overlays is
	// short and the host slows its guests for that.
	GuestThrottled string  `json:"guest_throttled,omitempty" needs:"-"`
	StallMS        StallMS `json:"stall_ms"`
	ExposedSeconds float64 `json:"exposed_seconds"`
	// OverlayShared says that the overlay is on storage that other hosts see, so that the loss of
	// this host does not take with it what the guest wrote in ExposedSeconds.
	OverlayShared bool   `json:"overlay_shared,omitempty" needs:"-"`
	Verify        string `json:"verify"`
	ExternalCopy  bool   `json:"external_copy"`
	DeleteSource  bool   `json:"delete_source"`
	// Composite says that the migration goes on by itself from one call to the next, as that of
	// a `volume migrate` does. With an external copy it waits for that.
	Composite  bool       `json:"composite,omitempty" needs:"-"`
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	// StoppedAt is since when nothing more is done until somebody asks for it, because the
	// last operation failed or needs an operator, or since when a migration that would go on by
	// itself cannot; Error says why. It is nil while the migration goes on, or waits for the next
	// call of whoever makes it.
	StoppedAt *time.Time `json:"stopped_at,omitempty" needs:"-"`
	// PauseSteps are, of one migration that the registry leads, what was reached when while its
	// guests stood still; lists have none of them.
	PauseSteps []PauseStep `json:"pause_steps,omitempty" needs:"-"`
	// Remark says how the result of a migration differs, or may differ, from what the caller
	// may expect.
	Remark string `json:"remark,omitempty"`
	Error  *Error `json:"error"`
}

// Op is a durable operation on a host. Migration is set if the op is part of a migration.
// Location is what a copy with all guests paused has made, once it is done. Remark says how
// the result of a finished op differs from what the caller may expect.
//
// WaitingFor is what the op waits for: registry, hypervisor, processes, storage, guest, backup,
// turn (the op Behind comes first) or another word; it is empty while the op works. WaitingSince is
// when the wait began. Next has, for people, the commands that bring an op that needs an operator
// to its end, if they are known.
type Op struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	State string `json:"state" enum:"running,undoing,done,undone,needs_operator"`
	Step  string `json:"step,omitempty"`
	// Subject is the volume or instance that the op is about, for people; empty where
	// the op does not say.
	Subject string `json:"subject,omitempty"`

	WaitingFor   string     `json:"waiting_for,omitempty"`
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
	Behind       string     `json:"behind,omitempty"`

	MigrationID string    `json:"migration_id,omitempty"`
	Location    *Location `json:"location,omitempty"`
	// Live is what an op of a move while all guests write has found, once it is done.
	Live       *LiveOutcome `json:"live,omitempty"`
	Remark     string       `json:"remark,omitempty"`
	CreatedAt  time.Time    `json:"created_at"`
	FinishedAt *time.Time   `json:"finished_at"`
	Error      *Error       `json:"error"`
	Next       string       `json:"next,omitempty"`
}

// The states of an op that has ended or waits for the operator. The last line of its stream
// has one of them as its result.
const (
	OpDone          = "done"
	OpUndone        = "undone"
	OpNeedsOperator = "needs_operator"
)

// Took is how long a host has worked on an op, 0 if it is not over.
func (o *Op) Took() time.Duration {
	if o.FinishedAt == nil {
		return 0
	}
	return max(0, o.FinishedAt.Sub(o.CreatedAt))
}

// Token holds fencing tokens: the epoch of the host that made a change, and the generation
// of the volume that it changed. 0 where there is none.
type Token struct {
	Epoch      int64 `json:"epoch,omitempty"`
	Generation int64 `json:"generation,omitempty"`
}

// IsLinkedClone reports whether the image at a location is over base images.
func (l Location) IsLinkedClone() bool { return l.Backing != "" }

// NotMoving returns the attachments whose volumes none of these migrations moves.
func NotMoving(atts []Attachment, open []Migration) []Attachment {
	moving := func(a Attachment) bool {
		return slices.ContainsFunc(open, func(m Migration) bool { return m.VolumeID == a.VolumeID })
	}
	return slices.DeleteFunc(slices.Clone(atts), moving)
}
