// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"time"
)

// SchemaVersion is the value of "schema_version" in the output of `volferryctl -o json` and in
// answers of the API.
const SchemaVersion = 1

// Location is where the data of a volume is. Path is set once the location exists; Pool and Name
// are empty for a location given by a path. SizeBytes is the exact virtual size.
type Location struct {
	Pool string `json:"pool,omitempty"`
	Name string `json:"name,omitempty"`
	// Path is absolute, or the address of an NBD export (NBDExport.URI) or of an RBD image
	// (RBDImage.URI).
	Path      string `json:"path"`
	Format    Format `json:"format"`
	SizeBytes int64  `json:"size_bytes"`
	// Backing are the base images of a linked clone when it became a volume.
	Backing Backing `json:"backing,omitempty"`
	// ImageBytes is the size of the image at Path if the volume is only its first part, else 0.
	// Raw only.
	ImageBytes int64 `json:"image_bytes,omitempty"`
	// LUKSSecret is the UUID of the libvirt secret with the passphrase if QEMU opens the image as
	// a LUKS container for the guest. SizeBytes is the size of the container; the guest sees all
	// of it except the header. Raw only.
	LUKSSecret string `json:"luks_secret,omitempty"`
	// Identity identifies the device at Path when it became the volume's (the WWID of a LUN, the
	// UUID of a map or namespace), or is the id of the RBD image. It is empty for a file, an
	// export, and a device without an identity.
	Identity string `json:"identity,omitempty"`
}

// IsLUKS reports whether QEMU encrypts the data at the path.
func (l Location) IsLUKS() bool { return l.LUKSSecret != "" }

// IsSlice reports whether the volume is only the first part of the image.
func (l Location) IsSlice() bool { return l.ImageBytes != 0 }

// SliceBytes returns the size of the volume if it is only the first part of the image, else 0.
func (l Location) SliceBytes() int64 {
	if l.ImageBytes == 0 {
		return 0
	}
	return l.SizeBytes
}

// Resized returns the location of the volume with a larger size. If it is the size of the image,
// the volume is no slice any more.
func (l Location) Resized(sizeBytes int64) Location {
	if l.SizeBytes = sizeBytes; l.ImageBytes <= sizeBytes {
		l.ImageBytes = 0
	}
	return l
}

// WholeBytes returns the size of the image, including the part after a slice.
func (l Location) WholeBytes() int64 { return max(l.SizeBytes, l.ImageBytes) }

// VolumeBytes returns the size of the volume in an image of this size. The bytes after a slice do
// not belong to the volume.
func (l Location) VolumeBytes(imageBytes int64) int64 {
	if l.ImageBytes == 0 {
		return imageBytes
	}
	return min(imageBytes, l.SizeBytes)
}

// InstanceState is the state of an instance.
type InstanceState string

// The states of an instance.
const (
	InstanceRunning          InstanceState = "running"
	InstancePaused           InstanceState = "paused"
	InstanceAsleep           InstanceState = "asleep"  // sleeps (S3)
	InstanceCrashed          InstanceState = "crashed" // the process of the guest is kept
	InstanceStopped          InstanceState = "stopped"
	InstanceShelved          InstanceState = "shelved"
	InstanceShelvedOffloaded InstanceState = "shelved_offloaded"
	InstanceError            InstanceState = "error"
)

// Standstill reports whether a guest in this state is halted although no program has paused it.
// The registry treats it as paused.
func (s InstanceState) Standstill() bool { return s == InstanceAsleep || s == InstanceCrashed }

// OnShelf reports whether an instance in this state is on the registry's shelf.
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
	// VolumeResizing: an op enlarges the volume, and excludes other ops.
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

// The states of a migration. Completed, cancelled and error are final: error means that the start
// failed and was undone completely. If the copy or the complete operation fails, the migration
// keeps its state, with Error set, and may be tried again or cancelled. In needs_operator Volferry
// does nothing until an operator acts.
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
	// Behind: the host has not returned since a restore of the registry was accepted. It may have
	// volumes that the registry does not know it has.
	Behind bool `json:"behind,omitempty"`
	// Mark, ReportDigest and ReportEverySeconds are set in the answer to a report.
	Mark *RegistryMark `json:"mark,omitempty"`
	// ReportDigest may be the HostReport.Digest of the next report, if nothing has changed.
	ReportDigest string `json:"report_digest,omitempty"`
	// ReportEverySeconds is how often the registry expects a report while nothing changes.
	ReportEverySeconds int `json:"report_every_seconds,omitempty"`
	// Protocol is the protocol of the host's daemon, 0 until the host has reported to this run of
	// the registry. Lacks are the registry's features that the daemon lacks.
	Protocol int      `json:"protocol,omitempty"`
	Lacks    []string `json:"lacks,omitempty"`
}

// Pool is a storage pool of one host, or of several if Shared is set: all hosts with a pool of this
// name then see the same bytes. With Multiattach several guests may have a volume open at once. The
// registry sets Host, UpdatedAt and Stale; a report may leave them out.
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
	// Stale: the host does not report the pool now, so everything is as of UpdatedAt.
	Stale bool `json:"stale,omitempty"`
	// Uses has at most MaxPoolUses entries.
	Uses []PoolUse `json:"uses,omitempty"`
}

// VolumeType is a named set of properties. If Pools is empty, every pool is allowed.
type VolumeType struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Multiattach bool      `json:"multiattach"`
	Pools       []string  `json:"pools"`
	CreatedAt   time.Time `json:"created_at"`
}

// Volume is a disk's content. When its bytes move, its ID stays the same, and Generation, its
// fencing token, changes.
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
	// ResizeOpID is the op that enlarges the volume.
	ResizeOpID string `json:"resize_op_id,omitempty"`
	// Adopted: the data existed before it became a volume, so volferryctl asks the operator before
	// a delete. It stays true when the volume moves, since the copy may be the only one of that
	// data.
	Adopted bool `json:"adopted"`
	// SizeChangedAt is when the size was last found changed.
	SizeChangedAt *time.Time `json:"size_changed_at,omitempty"`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
}

// ReleasedSource is the kept image that a volume has left in a move. It belongs to no volume.
type ReleasedSource struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	VolumeName  string   `json:"volume_name"`
	Host        string   `json:"host"`
	Location    Location `json:"location"`
	// AllocatedBytes is the allocated size of a file, 0 for a device.
	AllocatedBytes int64     `json:"allocated_bytes"`
	ReleasedAt     time.Time `json:"released_at"`
	// Written: a program wrote to the image after the volume left it.
	Written bool `json:"written,omitempty"`
	// WrittenUnknown is why Written is unknown.
	WrittenUnknown string `json:"written_unknown,omitempty"`
	// RunBy is the name of a domain of Host with a running guest that has the image as a disk.
	RunBy string `json:"run_by,omitempty"`
	// VolumePath is the volume's present path, if known.
	VolumePath string `json:"volume_path,omitempty"`
	// Unrecorded: the registry does not know the move, and still has the volume here. VolumePath
	// is from the host's journal then.
	Unrecorded bool `json:"unrecorded,omitempty"`
	// Blocked is why a delete would be refused now.
	Blocked string `json:"blocked,omitempty"`
}

// Unheld reports whether no host has an instance with the volume: it is unattached, or only at
// shelved_offloaded instances. No guest can have it open then.
func (v *Volume) Unheld() bool {
	return !slices.ContainsFunc(v.Attachments, func(a Attachment) bool { return a.Host != "" })
}

// Attachment is one volume at one instance. The names are for display and may be missing.
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

// BlockDeviceMapping is a slot of an instance. VolumeID and AttachmentID are nil for an empty slot
// and for a disk that is no volume.
type BlockDeviceMapping struct {
	Device       string  `json:"device"`
	BootIndex    *int    `json:"boot_index"`
	VolumeID     *string `json:"volume_id"`
	AttachmentID *string `json:"attachment_id"`
	Mode         Mode    `json:"mode,omitempty"`
	// Note is why the disk in the slot is not a volume.
	Note string          `json:"note,omitempty"`
	Slot *SlotDefinition `json:"slot,omitempty"`
}

// SlotDefinition describes the last disk of an empty slot, so that another volume can get the same
// settings.
type SlotDefinition struct {
	// Disk is the previous disk with all its settings, in the hypervisor's format.
	Disk string `json:"disk"`
	// SerialOfVolume: the disk's serial was the id of its volume, so the next disk's serial
	// becomes the next volume's id.
	SerialOfVolume bool `json:"serial_of_volume"`
}

// Instance is a libvirt domain under Volferry's care; its ID is the domain's UUID. Host is empty
// if it is shelved_offloaded.
type Instance struct {
	ID    string        `json:"id"`
	Name  string        `json:"name"`
	Host  string        `json:"host"`
	State InstanceState `json:"state"`
	// LockReason is set while the instance is locked, by an operator or by the migration LockedBy.
	Locked     bool   `json:"locked"`
	LockReason string `json:"lock_reason,omitempty"`
	LockedBy   string `json:"locked_by,omitempty"`
	// Note describes a difference that its host has found: the domain is gone, or has other disks.
	Note string `json:"note,omitempty"`
	// Differs: the disks of the domain are not at the locations of its volumes.
	Differs             bool                 `json:"differs,omitempty"`
	BlockDeviceMappings []BlockDeviceMapping `json:"block_device_mappings"`
	// DetachedDisks describe the disks of detached volumes, so that each can return with its
	// settings. Lists leave them out.
	DetachedDisks []DetachedDisk `json:"detached_disks,omitempty"`
	CreatedAt     time.Time      `json:"created_at"`
	UpdatedAt     time.Time      `json:"updated_at"`
}

// DetachedDisk describes a volume's disk at an instance at its last detach.
type DetachedDisk struct {
	VolumeID string         `json:"volume_id"`
	Device   string         `json:"device"`
	Slot     SlotDefinition `json:"slot"`
}

// Detached returns the volume's disk at its last detach from the instance, nil if unknown.
func (i *Instance) Detached(volumeID string) *DetachedDisk {
	for n := range i.DetachedDisks {
		if i.DetachedDisks[n].VolumeID == volumeID {
			return &i.DetachedDisks[n]
		}
	}
	return nil
}

// StallMS is how long the guest could not complete a write, in milliseconds, as the host measured
// it. A value is nil if its phase of the move has not begun, or there was no guest.
type StallMS struct {
	Start  *float64 `json:"start"`
	Switch *float64 `json:"switch"`
	// Job is for the start of a block job. It is nil if the guest was not paused; only a QEMU that
	// may lose writes then needs the pause.
	Job *float64 `json:"job,omitempty"`
}

// Migration is the move of a volume from Src to Dst.
type Migration struct {
	ID                      string         `json:"id"`
	VolumeID                string         `json:"volume_id"`
	VolumeName              string         `json:"volume_name,omitempty"`
	InstanceID              string         `json:"instance_id,omitempty"`
	Host                    string         `json:"host"`
	SrcAttachmentID         string         `json:"src_attachment_id,omitempty"`
	DstAttachmentID         string         `json:"dst_attachment_id,omitempty"`
	Src                     Location       `json:"src"`
	Dst                     Location       `json:"dst"`
	Method                  string         `json:"method" enum:"overlay,offline,mirror,save"`
	State                   MigrationState `json:"state"`
	Phase                   string         `json:"phase"`
	BytesTotal              int64          `json:"bytes_total"`
	BytesDone               int64          `json:"bytes_done"`
	RateBytesPerSecond      int64          `json:"rate_bytes_per_second"`
	BandwidthBytesPerSecond int64          `json:"bandwidth_bytes_per_second"`
	// Pacing describes how and why the copy is slowed down for the guest now, or is empty.
	Pace         string `json:"pace,omitempty" enum:"off,gentle,full"`
	Pacing       string `json:"pacing,omitempty"`
	OverlayBytes int64  `json:"overlay_bytes"`
	// GuestPaused is why an I/O error has paused the guest while it writes to the overlay. Usually
	// the overlay has no space left.
	GuestPaused     string `json:"guest_paused,omitempty"`
	GuestNotResumed string `json:"guest_not_resumed,omitempty"`
	// ChainProblem is nil if no other program has changed the disk's images.
	ChainProblem *ChainProblem `json:"chain_problem,omitempty"`
	// GuestThrottled is how fast the guest may write, and why, while the host throttles its guests
	// for lack of space for overlays.
	GuestThrottled string  `json:"guest_throttled,omitempty"`
	StallMS        StallMS `json:"stall_ms"`
	ExposedSeconds float64 `json:"exposed_seconds"`
	// OverlayShared: other hosts see the overlay, so the guest's writes of ExposedSeconds survive
	// the loss of this host.
	OverlayShared bool   `json:"overlay_shared,omitempty"`
	Verify        string `json:"verify"`
	ExternalCopy  bool   `json:"external_copy"`
	DeleteSource  bool   `json:"delete_source"`
	// Composite: the migration goes on by itself, as in `volume migrate`, but waits for an
	// external copy.
	Composite  bool       `json:"composite,omitempty"`
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	// StoppedAt is when the migration's last operation failed or needed an operator, or when it
	// became unable to go on by itself; Error has the reason. It is nil while the migration goes
	// on, or waits for its caller's next call.
	StoppedAt *time.Time `json:"stopped_at,omitempty"`
	// PauseSteps are for a migration that the registry leads; lists leave them out.
	PauseSteps []PauseStep `json:"pause_steps,omitempty"`
	// Remark describes how the result differs, or may differ, from the caller's expectation.
	Remark string `json:"remark,omitempty"`
	// DstAfter is the fate of the image at Dst after a cancel, empty if unknown. Remark has the
	// reason for kept.
	DstAfter string `json:"dst_after,omitempty" enum:"deleted,kept"`
	Error    *Error `json:"error"`
}

// The values of Migration.DstAfter.
const (
	DstDeleted = "deleted"
	DstKept    = "kept"
)

// Op is a durable operation on a host. Location is the destination that a copy with all guests
// paused has created. Remark describes how the result of a finished op differs from the caller's
// expectation.
//
// WaitingFor is registry, hypervisor, processes, storage, guest, backup, turn (the op Behind comes
// first) or another word; it is empty while the op works. The wait began at WaitingSince. Next has
// the commands, if known, that end an op that needs an operator, for display.
type Op struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	State string `json:"state" enum:"running,undoing,done,undone,needs_operator"`
	Step  string `json:"step,omitempty"`
	// Subject is the op's volume or instance, for display; it may be empty.
	Subject string `json:"subject,omitempty"`

	WaitingFor   string     `json:"waiting_for,omitempty"`
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
	Behind       string     `json:"behind,omitempty"`

	MigrationID string    `json:"migration_id,omitempty"`
	Location    *Location `json:"location,omitempty"`
	// Live is the result of a finished op of a move while all guests write.
	Live       *LiveOutcome `json:"live,omitempty"`
	Remark     string       `json:"remark,omitempty"`
	CreatedAt  time.Time    `json:"created_at"`
	FinishedAt *time.Time   `json:"finished_at"`
	Error      *Error       `json:"error"`
	Next       string       `json:"next,omitempty"`
}

// The states of an op that has ended or waits for the operator. The last line of its stream has
// one of them as its result.
const (
	OpDone          = "done"
	OpUndone        = "undone"
	OpNeedsOperator = "needs_operator"
)

// Took returns how long a host has worked on an op, 0 if it is not over.
func (o *Op) Took() time.Duration {
	if o.FinishedAt == nil {
		return 0
	}
	return max(0, o.FinishedAt.Sub(o.CreatedAt))
}

// Token holds fencing tokens: the epoch of the host that made a change, and the generation of the
// changed volume. 0 means none.
type Token struct {
	Epoch      int64 `json:"epoch,omitempty"`
	Generation int64 `json:"generation,omitempty"`
}

// IsLinkedClone reports whether the image at a location has base images.
func (l Location) IsLinkedClone() bool { return l.Backing != "" }

// NotMoving returns the attachments with a volume that none of these migrations moves.
func NotMoving(atts []Attachment, open []Migration) []Attachment {
	moving := func(a Attachment) bool {
		return slices.ContainsFunc(open, func(m Migration) bool { return m.VolumeID == a.VolumeID })
	}
	return slices.DeleteFunc(slices.Clone(atts), moving)
}
