// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"time"
)

// IdempotencyKeyHeader has the op id that the client chose for a change. A request with the same
// key and body gets the same answer; with another body the error is CodeIdempotencyMismatch.
const IdempotencyKeyHeader = "Idempotency-Key"

// VolumeCreate creates a volume. An empty Type is "default", an empty Format raw. Without Pool,
// Volferry chooses a pool that the type allows.
type VolumeCreate struct {
	Name      string `json:"name"`
	SizeBytes int64  `json:"size_bytes"`
	Type      string `json:"type,omitempty"`
	Pool      string `json:"pool,omitempty"`
	Format    Format `json:"format,omitempty"`
	Bootable  bool   `json:"bootable,omitempty"`
}

// VolumeAdopt registers an existing image, named by Path or by Pool and VolumeName. Format is
// required, and never probed.
type VolumeAdopt struct {
	Name       string `json:"name"`
	Path       string `json:"path,omitempty"`
	Pool       string `json:"pool,omitempty"`
	VolumeName string `json:"volume_name,omitempty"`
	Format     Format `json:"format"`
	Type       string `json:"type,omitempty"`
	Bootable   bool   `json:"bootable,omitempty"`
	Force      bool   `json:"force,omitempty"`
}

// VolumeUpdate changes the fields that are not nil. With Identity the operator asserts that the
// device with this Location.Identity is the volume now; an empty Identity means the device at the
// volume's path.
type VolumeUpdate struct {
	Name     *string `json:"name,omitempty"`
	Bootable *bool   `json:"bootable,omitempty"`
	Identity *string `json:"identity,omitempty"`
}

// InstanceAdopt adopts the disks of a libvirt domain (a name or UUID), or with All of every domain
// of the host. The new volumes get the type Type (empty is "default"). If Type is a multiattach
// type, only <shareable/> disks get it, and the others get "default".
type InstanceAdopt struct {
	Domain string `json:"domain,omitempty"`
	All    bool   `json:"all,omitempty"`
	Type   string `json:"type,omitempty"`
	// Force also adopts a disk with an image that another volume has left in a move.
	Force bool `json:"force,omitempty"`
}

// VolumeTypeCreate creates a volume type.
type VolumeTypeCreate struct {
	Name        string   `json:"name"`
	Multiattach bool     `json:"multiattach,omitempty"`
	Pools       []string `json:"pools,omitempty"`
}

// VolumeTypeUpdate changes the fields that are not nil.
type VolumeTypeUpdate struct {
	Name        *string   `json:"name,omitempty"`
	Multiattach *bool     `json:"multiattach,omitempty"`
	Pools       *[]string `json:"pools,omitempty"`
}

// VolumeResize has the new size of a volume, which cannot be smaller than the present size.
type VolumeResize struct {
	SizeBytes int64 `json:"size_bytes"`
}

// MigrationTarget is the destination of a move and its options: the body of migration:start and of
// a volume's migrate. Exactly one of ToPool and ToPath is set. An empty ToFormat keeps the format,
// an empty Method is "auto", and an empty Verify is "full" ("none" for a mirror). Only a volume's
// migrate accepts the method "live": the registry makes the hosts move the volume while all its
// guests write.
type MigrationTarget struct {
	ToPool string `json:"to_pool,omitempty"`
	ToPath string `json:"to_path,omitempty"`
	// ToType is the volume's type after the move; empty keeps the type.
	ToType   string `json:"to_type,omitempty"`
	ToFormat Format `json:"to_format,omitempty"`
	Method   string `json:"method,omitempty" enum:"auto,overlay,mirror,live"`
	CopyOptions
	DeleteSource bool `json:"delete_source,omitempty"`
	ExternalCopy bool `json:"external_copy,omitempty"`
	// KeepBase keeps the base images of a linked clone: the destination is a new qcow2 file over
	// them. Otherwise the volume becomes independent of them.
	KeepBase bool `json:"keep_base,omitempty"`
	// PauseAll saves every guest of the volume with its RAM, moves the volume, and restores the
	// guests: for volumes with several attachments. The registry does it, even if a daemon gets
	// the request.
	PauseAll bool `json:"pause_all,omitempty"`
	// MaxPauseSeconds limits, for Method live, the expected pause of all guests at the end; 0 is
	// 30. The move waits until the estimate is within the limit, and is cancelled if the pause
	// takes three times as long.
	MaxPauseSeconds int64 `json:"max_pause_seconds,omitempty"`
	// ThrottleWriters allows, for Method live, the hosts to throttle writes to the volume if the
	// guests write faster than the copy. Without it such a move is cancelled.
	ThrottleWriters bool `json:"throttle_writers,omitempty"`
	// Checkpoints is CheckpointsDrop to drop the dirty bitmaps of a volume that no guest writes
	// to. Otherwise its move is refused, since backups that use the bitmaps could not continue.
	Checkpoints string `json:"checkpoints,omitempty" enum:"drop"`
	// Allocation is the allocation of the new file: AllocationThick takes the whole size at once;
	// AllocationKeep, the default, is like the source.
	Allocation string `json:"allocation,omitempty" enum:"keep,thin,thick"`
	// Overwrite permits the move to overwrite a file at ToPath that has data unknown to Volferry,
	// or that another volume has left. Otherwise the error is dst_in_use with DetailOverwrites.
	Overwrite bool `json:"overwrite,omitempty"`
}

// The values of MigrationTarget.Allocation.
const (
	AllocationKeep  = "keep"
	AllocationThin  = "thin"
	AllocationThick = "thick"
)

// CheckpointsDrop is a value of MigrationTarget.Checkpoints.
const CheckpointsDrop = "drop"

// MigrationComplete is the body of migration:complete.
type MigrationComplete struct {
	DstAttachmentID string `json:"dst_attachment_id"`
}

// HostReport is a daemon's report of its host to the registry, at its start and then every few
// seconds. A nil list leaves the registry's list unchanged; Migrations are the host's open
// migrations. Epoch is the last epoch that the host got, 0 if none. If it is older than the
// registry's, the error is stale_epoch. Mark is the newest mark that the host got. Digest, if not
// "", is the Host.ReportDigest of the answer to an earlier report: version, boot id, pools and
// instances are unchanged since that report, and are left out.
type HostReport struct {
	ID         string           `json:"id"`
	Name       string           `json:"name"`
	Version    string           `json:"version"`
	BootID     string           `json:"boot_id"`
	Epoch      int64            `json:"epoch"`
	Mark       *RegistryMark    `json:"mark,omitempty"`
	Digest     string           `json:"digest,omitempty"`
	Pools      []Pool           `json:"pools" schema:"optional,nullable"`
	Instances  []InstanceReport `json:"instances" schema:"optional,nullable"`
	Migrations []Migration      `json:"migrations,omitempty"`
}

// DetailReportFirst is a detail of registry_unavailable if the host has not reported since the
// registry started, and of not_found if it has not reported the named pool. The host has to
// report, and may then repeat the request.
const DetailReportFirst = "report_first"

// DetailDistrust is a detail of the error of a TLS connection that was not established although a
// server answers: which side distrusts the other.
const (
	DetailDistrust  = "distrust"
	DistrustsCaller = "of_caller" // the server refused the caller's certificate
	DistrustsServer = "of_server" // the caller refused the server's certificate
)

// DetailReportWhole is a detail of the conflict that answers a report with an unknown digest: the
// host has to send a whole report.
const DetailReportWhole = "report_whole"

// DetailReportLater is a detail of a refused report if a host reports changes too often: the host
// has to send it again later.
const DetailReportLater = "report_later"

// InstanceReport is the state of one instance in a HostReport.
type InstanceReport struct {
	ID    string        `json:"id"`
	State InstanceState `json:"state"`
	// Standstill is asleep or crashed if the guest is halted without a pause and State is paused;
	// otherwise empty.
	Standstill InstanceState `json:"standstill,omitempty"`
	Note       string        `json:"note,omitempty"`
	// Differs is as in Instance. The registry forgets such an instance only with force.
	Differs bool `json:"differs,omitempty"`
}

// AdoptedDisk is a disk that the adoption of an instance registers as a volume with one
// attachment. The daemon chooses the ids, so that a repeated call creates no second volume.
type AdoptedDisk struct {
	VolumeID     string   `json:"volume_id"`
	VolumeName   string   `json:"volume_name"`
	AttachmentID string   `json:"attachment_id"`
	Device       string   `json:"device"`
	BootIndex    *int     `json:"boot_index"`
	Mode         Mode     `json:"mode"`
	Location     Location `json:"location"`
	// Shareable: other domains may have the image open too.
	Shareable bool   `json:"shareable,omitempty"`
	Type      string `json:"type,omitempty"`
}

// DiskAttachment returns the attachment of the disk's volume.
func (d *AdoptedDisk) DiskAttachment() DiskAttachment {
	return DiskAttachment{Mode: d.Mode, Device: d.Device, BootIndex: d.BootIndex}
}

// Attachment returns the attachment that the registry creates for disk d.
func (d *AdoptedDisk) Attachment(in *InstanceRegister) Attachment {
	return Attachment{
		ID: d.AttachmentID, VolumeID: d.VolumeID, InstanceID: in.ID, Host: in.Host,
		DiskAttachment: d.DiskAttachment(), State: AttachmentAttached, Location: d.Location,
	}
}

// InstanceRegister stores an adopted instance with its disks, in one transaction (POST
// /v1/instances:register at the registry). Slots are disks that are no volumes (an ISO, an
// unsupported disk).
type InstanceRegister struct {
	ID    string               `json:"id"`
	Name  string               `json:"name"`
	Host  string               `json:"host"`
	State InstanceState        `json:"state"`
	Disks []AdoptedDisk        `json:"disks" schema:"nullable"`
	Slots []BlockDeviceMapping `json:"slots" schema:"nullable"`
}

// VolumeRegister stores a volume with an image that the daemon creates or has found (POST
// /v1/volumes:register at the registry). Status is creating or available.
type VolumeRegister struct {
	ID       string       `json:"id"`
	Name     string       `json:"name"`
	Status   VolumeStatus `json:"status"`
	Type     string       `json:"type"`
	Bootable bool         `json:"bootable"`
	Host     string       `json:"host"`
	Location Location     `json:"location"`
}

// VolumeTransition changes the status of a volume if it is still From; otherwise the error is
// CodeConflict. Location replaces the location of a volume in status creating: its path is known
// only after the image is created.
type VolumeTransition struct {
	From     VolumeStatus `json:"from"`
	To       VolumeStatus `json:"to"`
	Location *Location    `json:"location,omitempty"`
}

// VolumeGrow reports the size of an image that has grown (POST /v1/volumes/{volume}/grow at the
// registry). Only a host that has checked the image sends it. If FromBytes is not the registry's
// size, the error is CodeConflict.
type VolumeGrow struct {
	FromBytes int64 `json:"from_bytes"`
	SizeBytes int64 `json:"size_bytes"`
}

// VolumeIdentify reports the Location.Identity of a volume's device at Path (POST
// /v1/volumes/{volume}/identify at the registry). The registry stores the identity if the volume
// has none yet. If the volume has another path or identity, the error is CodeConflict.
type VolumeIdentify struct {
	Path     string `json:"path"`
	Identity string `json:"identity"`
}

// VolumeSize sets the size of a volume in the registry to the size of its image, even to a smaller
// one (POST /v1/volumes/{volume}/size at the registry). A host that has access to the image (Host,
// if set) has to report exactly this size. Evidence, for the audit trail, is how the operator
// knows that the image is the volume.
type VolumeSize struct {
	SizeBytes int64  `json:"size_bytes"`
	Evidence  string `json:"evidence"`
	Host      string `json:"host,omitempty"`
}

// VolumeImage is the image of a volume as a host sees it.
type VolumeImage struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

// VolumeResizeBegin locks a volume while its host enlarges it (POST
// /v1/volumes/{volume}/resize:begin at the registry). Generation is the volume's generation that
// the host saw. The op OpID will unlock it with VolumeResizeEnd.
type VolumeResizeBegin struct {
	Host       string `json:"host"`
	Epoch      int64  `json:"epoch"`
	Generation int64  `json:"generation"`
	OpID       string `json:"op_id"`
}

// VolumeResizeEnd unlocks a volume after a resize (POST /v1/volumes/{volume}/resize:end at the
// registry). SizeBytes is the size of the image after the resize, 0 if nothing was done.
type VolumeResizeEnd struct {
	Host      string `json:"host"`
	Epoch     int64  `json:"epoch"`
	OpID      string `json:"op_id"`
	SizeBytes int64  `json:"size_bytes,omitempty"`
}

// MigrationRegister is the first step of a migration at the registry. One transaction locks the
// volume, reserves Dst and, if the volume is attached, creates a second attachment at Dst in state
// reserved. If Generation is not the volume's, the error is CodeStaleGeneration. Epoch is the
// host's epoch. ToType, if not empty, is the volume's type after the migration; Dst is checked
// against it.
type MigrationRegister struct {
	ID              string   `json:"id"`
	VolumeID        string   `json:"volume_id"`
	SrcAttachmentID string   `json:"src_attachment_id,omitempty"`
	DstAttachmentID string   `json:"dst_attachment_id,omitempty"`
	Host            string   `json:"host"`
	Epoch           int64    `json:"epoch"`
	Generation      int64    `json:"generation"`
	Dst             Location `json:"dst"`
	Method          string   `json:"method"`
	ToType          string   `json:"to_type,omitempty"`
	OpID            string   `json:"op_id"`
}

// MigrationTransition changes the state of a migration in the registry if it is in From. In one
// transaction, completed switches the attachment (or the unattached volume) to Dst, frees the
// source and raises the volume's generation. cancelled frees Dst. Both unlock the volume. Dst, if
// not nil, replaces the reserved location.
type MigrationTransition struct {
	From  []MigrationState `json:"from"`
	To    MigrationState   `json:"to"`
	Host  string           `json:"host"`
	Epoch int64            `json:"epoch"`
	OpID  string           `json:"op_id"`
	Dst   *Location        `json:"dst,omitempty"`
	Error *Error           `json:"error,omitempty"`
	// NotSwitched asserts that the host did not switch the volume to Dst, which the registry
	// cannot see. In the states completing and needs_operator the registry frees Dst only with
	// this assertion.
	NotSwitched bool `json:"not_switched,omitempty"`
}

// EventPost is an audit event that a daemon adds to the registry's trail.
type EventPost struct {
	At      time.Time      `json:"at"`
	What    string         `json:"what"`
	Object  string         `json:"object"`
	From    string         `json:"from,omitempty"`
	To      string         `json:"to,omitempty"`
	OpID    string         `json:"op_id,omitempty"`
	Result  string         `json:"result,omitempty"`
	Details map[string]any `json:"details,omitempty"`
}

// Which shows which copy of a volume is authoritative. It has the volume's chains, top first,
// according to the registry, the journal and the hypervisor.
type Which struct {
	VolumeID string `json:"volume_id"`
	// Authoritative is the chain with every acknowledged write. It is nil if the three disagree
	// and Volferry cannot decide.
	Authoritative []Location `json:"authoritative" schema:"nullable"`
	Registry      *Location  `json:"registry"`
	Journal       []Location `json:"journal" schema:"nullable"`
	Live          []Location `json:"live" schema:"nullable"`
	Persistent    []Location `json:"persistent" schema:"nullable"`
	Agree         bool       `json:"agree"`
	Explanation   string     `json:"explanation"`
	// Written are the images that the volume has left in moves of this host and that were written
	// since: they may have data that the volume lacks.
	Written []Location `json:"written,omitempty"`
}

// WithoutRegistry removes the chain of an unavailable registry, and clears Agree.
func (w *Which) WithoutRegistry() {
	w.Registry, w.Agree = nil, false
	w.Explanation += "; the registry does not answer, so this is by this host's journal and libvirt alone"
}

// WithoutHypervisor removes the chains of libvirt and the kernel, Authoritative and Agree: neither
// registry nor journal knows which image a guest writes to now.
func (w *Which) WithoutHypervisor(reason string) {
	w.Live, w.Persistent, w.Authoritative, w.Agree = nil, nil, nil, false
	w.Explanation = fmt.Sprintf("%s; without libvirt nobody can tell what a guest writes to, so this is what registry and journal have; "+
		"ask again once it answers (systemctl status libvirtd)", reason)
}

// Check is the result of a check of `volferryctl doctor`.
type Check struct {
	Name    string `json:"name"`
	Status  string `json:"status" enum:"ok,warn,fail"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"`
}

// Fix is a repair by `volferryctl doctor --fix`, or its failure.
type Fix struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	Action string `json:"action"`
	After  string `json:"after"`
	Status string `json:"status" enum:"fixed,failed"`
}

// Status is a summary of a daemon or registry.
type Status struct {
	Program          string    `json:"program"`
	Version          string    `json:"version"`
	Host             string    `json:"host,omitempty"`
	HostID           string    `json:"host_id,omitempty"`
	Since            time.Time `json:"since"`
	Degraded         bool      `json:"degraded"`
	Parts            []Check   `json:"parts"`
	Instances        int       `json:"instances"`
	Volumes          int       `json:"volumes"`
	MigrationsActive int       `json:"migrations_active"`
	// NeedsOperator counts migrations, ops without a migration, and guests that run on an image
	// that their volume has left.
	NeedsOperator int `json:"needs_operator"`
}
