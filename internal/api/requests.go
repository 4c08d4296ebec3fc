// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"time"
)

// IdempotencyKeyHeader carries the op id that the client chose for a change. A request with
// the same key and the same body gets the same answer; with another body it is refused with
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
	// Force also registers an image that another volume has left by a move.
	Force bool `json:"force,omitempty" needs:"-"`
}

// VolumeUpdate changes what is not nil. Identity is the operator's word that the device with this
// identity (Location.Identity) is the volume by now; if it is empty, the device that is at the
// volume's path is.
type VolumeUpdate struct {
	Name     *string `json:"name,omitempty"`
	Bootable *bool   `json:"bootable,omitempty"`
	Identity *string `json:"identity,omitempty" needs:"identities"`
}

// InstanceAdopt takes over the disks of a libvirt domain, named by name or UUID, or with
// All of every domain on the host. The new volumes get the type Type (empty is "default").
// If Type is a multiattach type, only disks that the domain has as <shareable/> get it, and
// the others get "default".
type InstanceAdopt struct {
	Domain string `json:"domain,omitempty"`
	All    bool   `json:"all,omitempty"`
	Type   string `json:"type,omitempty"`
	// Force also takes over a disk on an image that another volume has left by a move: it
	// becomes a volume of its own.
	Force bool `json:"force,omitempty" needs:"-"`
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

// VolumeResize is the new size of a volume: the body of its resize. A volume can only be
// made larger.
type VolumeResize struct {
	SizeBytes int64 `json:"size_bytes"`
}

// MigrationTarget says where a volume is migrated to, and how: the body of migration:start
// and of a volume's migrate. Exactly one of ToPool and ToPath is set. An empty ToFormat
// keeps the format, an empty Method is "auto", and an empty Verify is "full" ("none" for a
// mirror). The method "live" is of a volume's migrate alone: all guests of the volume write
// while the registry has their hosts move it.
type MigrationTarget struct {
	ToPool string `json:"to_pool,omitempty"`
	ToPath string `json:"to_path,omitempty"`
	// ToType is the new type that a retype gives the volume once it is at dst. Empty keeps
	// its type.
	ToType   string `json:"to_type,omitempty"`
	ToFormat Format `json:"to_format,omitempty"`
	Method   string `json:"method,omitempty" enum:"auto,overlay,mirror,live"`
	CopyOptions
	DeleteSource bool `json:"delete_source,omitempty"`
	ExternalCopy bool `json:"external_copy,omitempty"`
	// KeepBase leaves the base images of a linked clone where they are: the destination is a new
	// qcow2 file over them, with what the volume has of its own. Without it the volume becomes one
	// that stands alone.
	KeepBase bool `json:"keep_base,omitempty" needs:"keep_base"`
	// PauseAll saves every guest that has the volume with its RAM, moves the volume, and
	// restores the guests: for volumes with several attachments. The registry does it, even
	// if a daemon is asked.
	PauseAll bool `json:"pause_all,omitempty"`
	// MaxPauseSeconds is, of a move with Method live, how long all guests may be expected to
	// stand still at its end; 0 is 30. The move waits for a moment at which that will do, and
	// is cancelled if it takes three times as long.
	MaxPauseSeconds int64 `json:"max_pause_seconds,omitempty" needs:"live_shared"`
	// ThrottleWriters lets, of a move with Method live, the hosts hold back what their guests
	// write to the volume when they write faster than it is copied. Without it such a move is
	// cancelled.
	ThrottleWriters bool `json:"throttle_writers,omitempty" needs:"throttle_writers"`
	// Checkpoints is CheckpointsDrop to lose the dirty bitmaps of a volume that no guest writes to:
	// without it such a volume is refused, since backups by them could not go on.
	Checkpoints string `json:"checkpoints,omitempty" enum:"drop" needs:"checkpoints"`
	// Allocation reports whether the file that the move makes gets room for all of the volume at
	// once: AllocationThick or AllocationThin, or AllocationKeep, the default, as src has.
	Allocation string `json:"allocation,omitempty" enum:"keep,thin,thick" needs:"allocation"`
	// Overwrite lets the move overwrite a file at ToPath that has data of which Volferry knows
	// nothing, or that another volume has left. Without it that is refused with dst_in_use and
	// DetailOverwrites.
	Overwrite bool `json:"overwrite,omitempty" needs:"-"`
}

// The values of MigrationTarget.Allocation.
const (
	AllocationKeep  = "keep"
	AllocationThin  = "thin"
	AllocationThick = "thick"
)

// CheckpointsDrop is the value of MigrationTarget.Checkpoints.
const CheckpointsDrop = "drop"

// MigrationComplete is the body of migration:complete.
type MigrationComplete struct {
	DstAttachmentID string `json:"dst_attachment_id"`
}

// HostReport is what a daemon reports of its host to the registry, at its start and then
// every few seconds. Pools replaces the list that the registry had; nil leaves it.
//
// Epoch is the epoch that the host was last told, 0 if it never was. If it is older than
// the registry's, the answer is stale_epoch. Mark is the newest mark that the host was
// told. Migrations are those that are open on the host; nil leaves what the registry had.
//
// Digest is the Host.ReportDigest of the answer to an earlier report. It says that version,
// boot id, pools and instances are the same as in that report, so they are left out. A
// registry that does not know the digest, for example after a restart, answers with a
// conflict that has DetailReportWhole, and wants a whole report. "" is no digest.
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

// DetailReportFirst is a detail of a registry_unavailable, if the host has not reported
// since the registry started, and of a not_found, if it has not reported the pool that it
// names. The host has to report and may then repeat the request.
const DetailReportFirst = "report_first"

// DetailDistrust is a detail of an error of a TLS connection that was not made, if something
// answers there: who does not trust whom.
const (
	DetailDistrust  = "distrust"
	DistrustsCaller = "of_caller" // the server refused the caller's certificate
	DistrustsServer = "of_server" // the caller refused the server's certificate
)

// DetailReportWhole is a detail of the conflict that answers a report with an unknown
// digest: the host has to send a whole report.
const DetailReportWhole = "report_whole"

// DetailReportLater is a detail of the refusal of a report, if a host reports changes too
// often. The registry works; the host has to send the report again later.
const DetailReportLater = "report_later"

// InstanceReport is the state of one instance in a HostReport.
type InstanceReport struct {
	ID    string        `json:"id"`
	State InstanceState `json:"state"`
	// Standstill is why a guest that is reported as paused stands still of its own accord: asleep,
	// crashed, or empty.
	Standstill InstanceState `json:"standstill,omitempty" needs:"-"`
	// Note is stored as Instance.Note.
	Note string `json:"note,omitempty"`
	// Differs says that the disks of its domain are not where its volumes are. The registry
	// forgets such an instance only if that is insisted on.
	Differs bool `json:"differs,omitempty" needs:"-"`
}

// AdoptedDisk is one disk of a domain that an instance adoption registers as a volume with
// one attachment. The daemon chooses the ids, so that a repeated call does not make a
// second volume.
type AdoptedDisk struct {
	VolumeID     string   `json:"volume_id"`
	VolumeName   string   `json:"volume_name"`
	AttachmentID string   `json:"attachment_id"`
	Device       string   `json:"device"`
	BootIndex    *int     `json:"boot_index"`
	Mode         Mode     `json:"mode"`
	Location     Location `json:"location"`
	// Shareable says that the domain lets others have the image open too.
	Shareable bool `json:"shareable,omitempty"`
	// Type is the volume's type, as in InstanceAdopt.
	Type string `json:"type,omitempty"`
}

// DiskAttachment returns how the volume of the disk is attached.
func (d *AdoptedDisk) DiskAttachment() DiskAttachment {
	return DiskAttachment{Mode: d.Mode, Device: d.Device, BootIndex: d.BootIndex}
}

// Attachment returns the attachment that registering disk d of in makes.
func (d *AdoptedDisk) Attachment(in *InstanceRegister) Attachment {
	return Attachment{
		ID: d.AttachmentID, VolumeID: d.VolumeID, InstanceID: in.ID, Host: in.Host,
		DiskAttachment: d.DiskAttachment(), State: AttachmentAttached, Location: d.Location,
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

// VolumeTransition changes the status of a volume if its status is still From; otherwise it
// is refused with CodeConflict. Location, if not nil, replaces the location of a volume in
// status creating, whose path is known only once the image was made.
type VolumeTransition struct {
	From     VolumeStatus `json:"from"`
	To       VolumeStatus `json:"to"`
	Location *Location    `json:"location,omitempty"`
}

// VolumeGrow tells the registry the size of an image that has grown: the body of POST
// /v1/volumes/{volume}/grow at the registry. Only a host that has looked at the image sends
// it. FromBytes is the size that the registry had; if it has another one, the answer is
// CodeConflict.
type VolumeGrow struct {
	FromBytes int64 `json:"from_bytes"`
	SizeBytes int64 `json:"size_bytes"`
}

// VolumeIdentify tells the registry what the device of a volume, which is at Path, says of itself
// (Location.Identity): the body of POST /v1/volumes/{volume}/identify at the registry. It is stored
// if nothing is yet; if the volume is elsewhere or has another identity, the answer is
// CodeConflict.
type VolumeIdentify struct {
	Path     string `json:"path"`
	Identity string `json:"identity" needs:"identities"`
}

// VolumeSize sets the size of a volume in the registry to the one that its image has, also a
// smaller one: the body of POST /v1/volumes/{volume}/size at the registry. A host that reaches the
// image has to report exactly this size: Host if that is set. Evidence is how the operator knows
// that the image is the volume, for the audit trail.
type VolumeSize struct {
	SizeBytes int64  `json:"size_bytes"`
	Evidence  string `json:"evidence"`
	Host      string `json:"host,omitempty" needs:"-"`
}

// VolumeImage is what a host sees of the image of a volume.
type VolumeImage struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
}

// VolumeResizeBegin locks a volume while its host makes it larger: the body of POST
// /v1/volumes/{volume}/resize:begin at the registry. Generation is the volume's generation
// that the host saw. OpID is the op that will unlock the volume with VolumeResizeEnd.
type VolumeResizeBegin struct {
	Host       string `json:"host"`
	Epoch      int64  `json:"epoch"`
	Generation int64  `json:"generation"`
	OpID       string `json:"op_id"`
}

// VolumeResizeEnd unlocks a volume after a resize: the body of POST
// /v1/volumes/{volume}/resize:end at the registry. SizeBytes is the size that the host has
// seen the image to have, 0 if nothing was done.
type VolumeResizeEnd struct {
	Host      string `json:"host"`
	Epoch     int64  `json:"epoch"`
	OpID      string `json:"op_id"`
	SizeBytes int64  `json:"size_bytes,omitempty"`
}

// MigrationRegister is the first step of a migration at the registry. In one transaction
// the volume is locked for the migration, Dst is reserved, and, if the volume is attached,
// a second attachment of it is made at Dst in state reserved. Generation is the volume's
// generation that the caller saw (CodeStaleGeneration if it has changed since), Epoch the
// host's epoch. ToType, if not empty, is the type that the volume gets with the flip; Dst
// is checked against it.
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

// MigrationTransition changes the state of a migration in the registry, if its state is in
// From. To completed flips the attachment (or the unattached volume) to dst, frees src and
// raises the volume's generation, in one transaction. To cancelled releases dst and leaves
// src as it was. Both unlock the volume. Dst, if not nil, replaces the reserved location,
// whose path is known only once dst was made.
type MigrationTransition struct {
	From  []MigrationState `json:"from"`
	To    MigrationState   `json:"to"`
	Host  string           `json:"host"`
	Epoch int64            `json:"epoch"`
	OpID  string           `json:"op_id"`
	Dst   *Location        `json:"dst,omitempty"`
	Error *Error           `json:"error,omitempty"`
	// NotSwitched is the host's word that the volume was not switched to dst, which the
	// registry cannot see. The registry drops dst in the states completing and
	// needs_operator only if it has this word.
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

// Which answers which copy of a volume is the good one: it has the volume's chain, top
// first, as registry, journal and hypervisor each have it.
type Which struct {
	VolumeID string `json:"volume_id"`
	// Authoritative is the chain that holds every acknowledged write. It is nil if the
	// three disagree in a way that Volferry cannot settle.
	Authoritative []Location `json:"authoritative" schema:"nullable"`
	Registry      *Location  `json:"registry"`
	Journal       []Location `json:"journal" schema:"nullable"`
	Live          []Location `json:"live" schema:"nullable"`
	Persistent    []Location `json:"persistent" schema:"nullable"`
	Agree         bool       `json:"agree"`
	Explanation   string     `json:"explanation"`
	// Written are the images that the volume has left by moves of this host and that were
	// written since: they may have what the volume lacks.
	Written []Location `json:"written,omitempty"`
}

// WithoutRegistry removes the registry's chain, and with it the verdict: the answer of a
// host whose registry is away has two witnesses, not three.
func (w *Which) WithoutRegistry() {
	w.Registry, w.Agree = nil, false
	w.Explanation += "; the registry does not answer, so this is by this host's journal and libvirt alone"
}

// WithoutHypervisor removes what libvirt and the kernel say, and with it the verdict: they cannot
// be asked, for this reason. What a guest writes to now, registry and journal do not know.
func (w *Which) WithoutHypervisor(reason string) {
	w.Live, w.Persistent, w.Authoritative, w.Agree = nil, nil, nil, false
	w.Explanation = fmt.Sprintf("%s; without libvirt nobody can tell what a guest writes to, so this is what registry and journal have; "+
		"ask again once it answers (systemctl status libvirtd)", reason)
}

// Check is one line of `volferryctl doctor`. Status is ok, warn or fail.
type Check struct {
	Name    string `json:"name"`
	Status  string `json:"status" enum:"ok,warn,fail"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"`
}

// Fix is one thing that `volferryctl doctor --fix` has mended, or failed to mend.
type Fix struct {
	// Name is the name of the check that found it.
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
	// Parts are what this program depends on: registry, libvirt, journal, overlays.
	Parts            []Check `json:"parts"`
	Instances        int     `json:"instances"`
	Volumes          int     `json:"volumes"`
	MigrationsActive int     `json:"migrations_active"`
	// NeedsOperator counts migrations, ops that belong to none, and guests that run on an image
	// which their volume has left.
	NeedsOperator int `json:"needs_operator"`
}
