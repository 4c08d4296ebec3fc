// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"time"
)

// SchemaVersion is the version of every JSON document, the value of
// "schema_version" in what `volferryctl -o json` prints and the API answers.
const SchemaVersion = 1

// Location says where the bytes of a volume are. Path is always set once the
// location exists; Pool and Name are empty for a location given by an absolute
// path. SizeBytes is the exact virtual size.
type Location struct {
	Pool      string `json:"pool,omitempty"`
	Name      string `json:"name,omitempty"`
	Path      string `json:"path"`
	Format    Format `json:"format"`
	SizeBytes int64  `json:"size_bytes"`
	// Backing are the base images of a linked clone, as they were when it became a volume.
	Backing Backing `json:"backing,omitempty" needs:"base_images"`
	// ImageBytes is the size of what is at the path if that is larger than the volume, which
	// is its beginning then; 0 if the volume is all of it. Raw only.
	ImageBytes int64 `json:"image_bytes,omitempty" needs:"slices"`
}

// IsSlice says whether the volume is only the beginning of what is at its path.
func (l Location) IsSlice() bool { return l.ImageBytes != 0 }

// VolumeBytes is the size of the volume of which an image of imageBytes was found at its
// location. What is behind a slice is not the volume's.
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
	InstanceStopped          InstanceState = "stopped"
	InstanceShelved          InstanceState = "shelved"
	InstanceShelvedOffloaded InstanceState = "shelved_offloaded"
	InstanceError            InstanceState = "error"
)

// OnShelf says whether the registry has an instance in this state on the shelf.
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
	// VolumeResizing: an op makes it larger; until that is over nothing else is done to it.
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

// Final says whether a migration in this state is over and holds no lock.
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
	// accepted: it may have volumes that the registry does not know it has.
	Behind bool `json:"behind,omitempty"`
	// Mark is set in the answer to a report.
	Mark *RegistryMark `json:"mark,omitempty"`
	// ReportDigest is set in the answer to a report: what stands for it in the next
	// one that says the same (HostReport.Digest).
	ReportDigest string `json:"report_digest,omitempty"`
	// Protocol is what the host's daemon speaks, and Lacks are the features of the registry
	// that it does not have. Protocol is 0 until the host has reported since the registry
	// started.
	Protocol int      `json:"protocol,omitempty"`
	Lacks    []string `json:"lacks,omitempty"`
}

// Pool is a storage pool of one host, or of several where Shared is set: then
// hosts that have a pool of this name see the same bytes. Multiattach says that
// a volume in it can be open in several guests at once. Host and UpdatedAt are the
// registry's: a report of a host need not have them.
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
}

// VolumeType is a named set of properties. No pools means every pool.
type VolumeType struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Multiattach bool      `json:"multiattach"`
	Pools       []string  `json:"pools"`
	CreatedAt   time.Time `json:"created_at"`
}

// Volume is a disk's content. Its ID never changes when its bytes move;
// Generation is the fencing token that does.
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
	// ResizeOpID is the op that makes it larger, empty if there is none.
	ResizeOpID string `json:"resize_op_id,omitempty"`
	// Adopted: its image was there before the volume was, and is where it was then.
	Adopted bool `json:"adopted"`
	// SizeChangedAt is when the size was seen to be another one last, nil if it is that
	// of the beginning.
	SizeChangedAt *time.Time `json:"size_changed_at,omitempty"`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
}

// Unheld says whether no host has an instance with the volume: it is attached to
// nothing, or to instances that are shelved_offloaded. No guest can have it open then.
func (v *Volume) Unheld() bool {
	return !slices.ContainsFunc(v.Attachments, func(a Attachment) bool { return a.Host != "" })
}

// Attachment is one volume at one instance. The names are for people: what a host
// answers for an operation of its own may lack them.
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
	// Mode is that of the attachment, empty where there is none.
	Mode Mode `json:"mode,omitempty"`
	// Note says why a slot with a disk in it has no volume.
	Note string `json:"note,omitempty"`
	// Slot is what is known of an empty slot, so that a volume can be put there
	// again.
	Slot *SlotDefinition `json:"slot,omitempty"`
}

// SlotDefinition is what has to be known of an empty slot to put a volume into it
// again as the last one was.
type SlotDefinition struct {
	// Disk is the disk that was there, in the hypervisor's own words: target, bus,
	// address, boot order and whatever else the definition of the domain had.
	Disk string `json:"disk"`
	// SerialOfVolume: the disk's serial was the id of its volume, so that the next
	// volume's is its own id. Otherwise the serial is the slot's and stays.
	SerialOfVolume bool `json:"serial_of_volume"`
}

// Instance is a libvirt domain under Volferry's care; its ID is the domain's UUID.
// Host is empty for one that is shelved_offloaded.
type Instance struct {
	ID    string        `json:"id"`
	Name  string        `json:"name"`
	Host  string        `json:"host"`
	State InstanceState `json:"state"`
	// LockReason is set while the instance is locked, by an operator or by the
	// migration LockedBy.
	Locked     bool   `json:"locked"`
	LockReason string `json:"lock_reason,omitempty"`
	LockedBy   string `json:"locked_by,omitempty"`
	// Note says what its host found that is not as it was left: its domain is
	// gone, or has other disks than the registry knows of.
	Note                string               `json:"note,omitempty"`
	BlockDeviceMappings []BlockDeviceMapping `json:"block_device_mappings"`
	// DetachedDisks are what the volumes were that were detached from it, so that each
	// can come back with the settings that it had. Lists leave it out.
	DetachedDisks []DetachedDisk `json:"detached_disks,omitempty"`
	CreatedAt     time.Time      `json:"created_at"`
	UpdatedAt     time.Time      `json:"updated_at"`
}

// DetachedDisk is the disk that a volume was at an instance when it was detached last.
type DetachedDisk struct {
	VolumeID string         `json:"volume_id"`
	Device   string         `json:"device"`
	Slot     SlotDefinition `json:"slot"`
}

// Detached is what the volume was when it was detached from the instance last, nil
// if that is not known.
func (i *Instance) Detached(volumeID string) *DetachedDisk {
	for n := range i.DetachedDisks {
		if i.DetachedDisks[n].VolumeID == volumeID {
			return &i.DetachedDisks[n]
		}
	}
	return nil
}

// StallMS is how long the guest could not complete a write, in milliseconds,
// as the host measured it; nil where the moment has not come, or where there
// was no guest.
type StallMS struct {
	Start  *float64 `json:"start"`
	Switch *float64 `json:"switch"`
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
	OverlayBytes            int64 `json:"overlay_bytes"`
	// GuestPaused says why the guest stands still, if an I/O error has paused it while its
	// writes go to the overlay; mostly there is no room for that.
	GuestPaused    string     `json:"guest_paused,omitempty"`
	StallMS        StallMS    `json:"stall_ms"`
	ExposedSeconds float64    `json:"exposed_seconds"`
	Verify         string     `json:"verify"`
	ExternalCopy   bool       `json:"external_copy"`
	DeleteSource   bool       `json:"delete_source"`
	StartedAt      *time.Time `json:"started_at"`
	FinishedAt     *time.Time `json:"finished_at"`
	// Remark is what is not as whoever asked may expect, of a migration that is over.
	Remark string `json:"remark,omitempty"`
	Error  *Error `json:"error"`
}

// Op is a durable operation on a host. Migration is set where the op is part
// of one; Location is what a copy with all guests paused has made, once it is done.
// Remark is what is not as whoever asked may expect, of an op that is done.
//
// WaitingFor is what an op waits for that does nothing just now: registry, hypervisor,
// guest, turn (another op, Behind, is before it) or a word of its kind; empty while it
// works. WaitingSince is when that began.
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

	MigrationID string     `json:"migration_id,omitempty"`
	Location    *Location  `json:"location,omitempty"`
	Remark      string     `json:"remark,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	FinishedAt  *time.Time `json:"finished_at"`
	Error       *Error     `json:"error"`
}

// The states of an op that is over, or waits for the operator, and the results that
// the last line of its stream has.
const (
	OpDone          = "done"
	OpUndone        = "undone"
	OpNeedsOperator = "needs_operator"
)

// Token is a fencing token: the epoch of the host that made a change, and the
// generation of the volume that it was made to. 0 where it has none.
type Token struct {
	Epoch      int64 `json:"epoch,omitempty"`
	Generation int64 `json:"generation,omitempty"`
}

// IsLinkedClone says whether the image at a location is over base images.
func (l Location) IsLinkedClone() bool { return l.Backing != "" }
