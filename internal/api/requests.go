// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// IdempotencyKeyHeader carries the client's op id of a mutation. The same key
// with the same body gets the same answer; with another body,
// CodeIdempotencyMismatch.
const IdempotencyKeyHeader = "Idempotency-Key"

// VolumeCreate asks for a new volume. An empty Type is the type "default"; an
// empty Pool lets Volferry choose one that the type allows; an empty Format is
// raw.
type VolumeCreate struct {
	Name      string `json:"name"`
	SizeBytes int64  `json:"size_bytes"`
	Type      string `json:"type,omitempty"`
	Pool      string `json:"pool,omitempty"`
	Format    Format `json:"format,omitempty"`
	Bootable  bool   `json:"bootable,omitempty"`
}

// VolumeAdopt registers an image that exists already, named by Path or by Pool
// and VolumeName. The format is the caller's word and is never probed.
type VolumeAdopt struct {
	Name       string `json:"name"`
	Path       string `json:"path,omitempty"`
	Pool       string `json:"pool,omitempty"`
	VolumeName string `json:"volume_name,omitempty"`
	Format     Format `json:"format"`
	Type       string `json:"type,omitempty"`
	Bootable   bool   `json:"bootable,omitempty"`
}

// VolumeUpdate changes what is not nil.
type VolumeUpdate struct {
	Name     *string `json:"name,omitempty"`
	Bootable *bool   `json:"bootable,omitempty"`
}

// InstanceAdopt takes over the disks of a libvirt domain, named by name or
// UUID, or with All of every domain on the host. The volumes that are made have the
// type Type, empty is "default"; a multiattach one is for the disks that the domain has
// as <shareable/>, and the others have the default.
type InstanceAdopt struct {
	Domain string `json:"domain,omitempty"`
	All    bool   `json:"all,omitempty"`
	Type   string `json:"type,omitempty"`
}

// VolumeTypeCreate asks for a new volume type.
type VolumeTypeCreate struct {
	Name        string   `json:"name"`
	Multiattach bool     `json:"multiattach,omitempty"`
	Pools       []string `json:"pools,omitempty"`
}

// VolumeTypeUpdate changes what is not nil.
type VolumeTypeUpdate struct {
	Name        *string   `json:"name,omitempty"`
	Multiattach *bool     `json:"multiattach,omitempty"`
	Pools       *[]string `json:"pools,omitempty"`
}

// VolumeResize is the size that a volume shall have: the body of its resize. A volume is
// only made larger.
type VolumeResize struct {
	SizeBytes int64 `json:"size_bytes"`
}

// MigrationTarget says where a volume shall go and how: the body of
// migration:start and of a volume's migrate. Exactly one of ToPool and ToPath
// is set. An empty ToFormat keeps the format, an empty Method is "auto", an
// empty Verify is "full", but "none" for a mirror.
type MigrationTarget struct {
	ToPool string `json:"to_pool,omitempty"`
	ToPath string `json:"to_path,omitempty"`
	// ToType is the type that the volume gets when it is at dst: a retype. Empty
	// keeps its type.
	ToType   string `json:"to_type,omitempty"`
	ToFormat Format `json:"to_format,omitempty"`
	Method   string `json:"method,omitempty" enum:"auto,overlay,mirror"`
	CopyOptions
	DeleteSource bool `json:"delete_source,omitempty"`
	ExternalCopy bool `json:"external_copy,omitempty"`
	// PauseAll saves every guest that has the volume with its RAM, moves the volume,
	// and wakes them: for volumes with several attachments. The registry does it,
	// whoever asks.
	PauseAll bool `json:"pause_all,omitempty"`
}

// MigrationComplete is the body of migration:complete.
type MigrationComplete struct {
	DstAttachmentID string `json:"dst_attachment_id"`
}

// HostReport is what a daemon tells the registry of its host, at start and
// then every few seconds. Pools replaces what was known; nil leaves it.
//
// Epoch is the epoch that the host was last told, 0 if it never was: an older
// one than the registry's is answered with stale_epoch. Mark is the newest mark
// that it was told. Migrations are those that are open on the host, for those
// who watch at the registry; nil leaves what was known.
//
// Digest is the Host.ReportDigest of the answer to an earlier report, "" for none:
// version, boot id, pools and instances are as they were in that one, and left out.
// A registry that does not know it, as after its start, answers with a conflict that
// has DetailReportWhole, and wants all of it.
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

// DetailReportFirst is in the details of a registry_unavailable to a host that
// has not reported to this run of the registry, and of a not_found to one that names a
// pool which it has not reported: a report is due now, and after it the same request may
// be sent again.
const DetailReportFirst = "report_first"

// DetailReportWhole is in the details of a conflict to a report that is a digest
// which the registry does not know: the same is due as a whole.
const DetailReportWhole = "report_whole"

// DetailReportLater is in the details of the refusal of a report of a host that reports
// something new too often. The registry is there, and the report is to be sent again.
const DetailReportLater = "report_later"

// InstanceReport is the state of one instance in a HostReport.
type InstanceReport struct {
	ID    string        `json:"id"`
	State InstanceState `json:"state"`
	// Note is Instance.Note.
	Note string `json:"note,omitempty"`
}

// AdoptedDisk is one disk of a domain that an instance adoption registers as a
// volume with one attachment. Ids are chosen by the daemon, so that a repeated
// call does not make a second volume.
type AdoptedDisk struct {
	VolumeID     string   `json:"volume_id"`
	VolumeName   string   `json:"volume_name"`
	AttachmentID string   `json:"attachment_id"`
	Device       string   `json:"device"`
	BootIndex    *int     `json:"boot_index"`
	Mode         Mode     `json:"mode"`
	Location     Location `json:"location"`
	// Shareable: the domain lets others have the image open as well.
	Shareable bool `json:"shareable,omitempty"`
	// Type is as in InstanceAdopt.
	Type string `json:"type,omitempty"`
}

// Attachment is the attachment that the registration of a disk of in makes.
func (d *AdoptedDisk) Attachment(in *InstanceRegister) Attachment {
	return Attachment{
		ID: d.AttachmentID, VolumeID: d.VolumeID, InstanceID: in.ID, Host: in.Host,
		DiskAttachment: DiskAttachment{Mode: d.Mode, Device: d.Device, BootIndex: d.BootIndex},
		State:          AttachmentAttached, Location: d.Location,
	}
}

// InstanceRegister records an adopted instance with its disks, in one
// transaction: the body of POST /v1/instances:register at the registry. Slots are
// disks of the domain that are no volume (an ISO, an unsupported disk).
type InstanceRegister struct {
	ID    string               `json:"id"`
	Name  string               `json:"name"`
	Host  string               `json:"host"`
	State InstanceState        `json:"state"`
	Disks []AdoptedDisk        `json:"disks" schema:"nullable"`
	Slots []BlockDeviceMapping `json:"slots" schema:"nullable"`
}

// VolumeRegister records a volume whose bytes the daemon makes or has found:
// the body of POST
// /v1/volumes:register at the registry. Status is creating or
// available.
type VolumeRegister struct {
	ID       string       `json:"id"`
	Name     string       `json:"name"`
	Status   VolumeStatus `json:"status"`
	Type     string       `json:"type"`
	Bootable bool         `json:"bootable"`
	Host     string       `json:"host"`
	Location Location     `json:"location"`
}

// VolumeTransition moves a volume from one status to another, if it still is
// in From (compare and swap; CodeConflict otherwise). Location, where not nil,
// replaces the one of a volume in creating (its path is known only once it was
// made).
type VolumeTransition struct {
	From     VolumeStatus `json:"from"`
	To       VolumeStatus `json:"to"`
	Location *Location    `json:"location,omitempty"`
}

// VolumeGrow takes over the size of an image that has grown: the body of POST
// /v1/volumes/{volume}/grow at the registry, by a host that has looked at the image.
// FromBytes is the size that the registry had (CodeConflict if it has another one).
type VolumeGrow struct {
	FromBytes int64 `json:"from_bytes"`
	SizeBytes int64 `json:"size_bytes"`
}

// VolumeResizeBegin keeps everybody from a volume while its host makes it larger: the
// body of POST /v1/volumes/{volume}/resize:begin at the registry. Generation is the
// volume's that the host saw; OpID is the op that ends it with VolumeResizeEnd.
type VolumeResizeBegin struct {
	Host       string `json:"host"`
	Epoch      int64  `json:"epoch"`
	Generation int64  `json:"generation"`
	OpID       string `json:"op_id"`
}

// VolumeResizeEnd lets others at the volume again: the body of POST
// /v1/volumes/{volume}/resize:end at the registry. SizeBytes is what its host has seen
// the image to have then, 0 if nothing was done.
type VolumeResizeEnd struct {
	Host      string `json:"host"`
	Epoch     int64  `json:"epoch"`
	OpID      string `json:"op_id"`
	SizeBytes int64  `json:"size_bytes,omitempty"`
}

// MigrationRegister is the first step of a migration at the registry, one
// transaction: the volume is locked for the migration, Dst is reserved against
// every other use, and, where the volume is attached, a second attachment of
// the same volume is made at Dst in state reserved. Generation is the volume's
// that the caller saw (CodeStaleGeneration if it moved on); Epoch the host's.
// ToType, where not empty, is the type that the volume gets with the flip, and
// that Dst is checked against.
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

// MigrationTransition moves the registry's row of a migration to another
// state, if it is in one of From. To completed flips the attachment (or the
// unattached volume) to dst, frees src and bumps the volume's generation, in
// one transaction; to cancelled releases dst and leaves src as it was; both
// give the lock back. Dst, where not nil, replaces the reserved location (its
// path is known only once it was made).
type MigrationTransition struct {
	From  []MigrationState `json:"from"`
	To    MigrationState   `json:"to"`
	Host  string           `json:"host"`
	Epoch int64            `json:"epoch"`
	OpID  string           `json:"op_id"`
	Dst   *Location        `json:"dst,omitempty"`
	Error *Error           `json:"error,omitempty"`
	// NotSwitched is the host's word that the volume was not switched to dst. The registry
	// cannot see that: from completing, or needs_operator, it drops dst on this word only.
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

// Which is the answer to "which copy is the good one": what registry, journal
// and hypervisor each hold to be the volume's chain, top first.
type Which struct {
	VolumeID string `json:"volume_id"`
	// Authoritative is the chain that holds every acknowledged write, nil if
	// the three disagree in a way that Volferry cannot settle.
	Authoritative []Location `json:"authoritative" schema:"nullable"`
	Registry      *Location  `json:"registry"`
	Journal       []Location `json:"journal" schema:"nullable"`
	Live          []Location `json:"live" schema:"nullable"`
	Persistent    []Location `json:"persistent" schema:"nullable"`
	Agree         bool       `json:"agree"`
	Explanation   string     `json:"explanation"`
}

// WithoutRegistry is the answer of a host whose registry is away: two witnesses
// are not three.
func (w *Which) WithoutRegistry() {
	w.Registry, w.Agree = nil, false
	w.Explanation += "; the registry does not answer, so this is by this host's journal and libvirt alone"
}

// Check is one line of `volferryctl doctor`. Status is ok, warn or fail.
type Check struct {
	Name    string `json:"name"`
	Status  string `json:"status" enum:"ok,warn,fail"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"`
}

// Fix is one thing that `volferryctl doctor --fix` has mended, or could not.
type Fix struct {
	// Name is the check's that found it.
	Name string `json:"name"`
	// Before is what was wrong, Action what was done about it, After how it is now.
	Before string `json:"before"`
	Action string `json:"action"`
	After  string `json:"after"`
	Status string `json:"status" enum:"fixed,failed"`
}

// Status is one screen about a daemon or a registry.
type Status struct {
	Program  string    `json:"program"`
	Version  string    `json:"version"`
	Host     string    `json:"host,omitempty"`
	HostID   string    `json:"host_id,omitempty"`
	Since    time.Time `json:"since"`
	Degraded bool      `json:"degraded"`
	// Parts are what this program leans on: registry, libvirt, journal,
	// overlays.
	Parts            []Check `json:"parts"`
	Instances        int     `json:"instances"`
	Volumes          int     `json:"volumes"`
	MigrationsActive int     `json:"migrations_active"`
	NeedsOperator    int     `json:"needs_operator"`
}
