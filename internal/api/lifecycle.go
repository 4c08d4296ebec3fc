// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// InstanceStop asks to shut an instance down: the body of POST
// /v1/instances/{instance}/stop. The guest is asked (ACPI) and has TimeoutSeconds (0 is
// 120) to obey; if it does not, the answer is instance_busy. Force does not ask the guest:
// it is a power cut.
type InstanceStop struct {
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

// InstanceRepair has the definition of an instance name its volumes: the body of POST
// /v1/instances/{instance}/repair. SourceUnwritten is the caller's word that the guest has not run
// from the source of a volume that moves, where that keeps no record of writes; where one is kept,
// it counts for nothing.
type InstanceRepair struct {
	SourceUnwritten bool `json:"source_unwritten,omitempty" needs:"-"`
}

// InstanceShelve puts an instance on the shelf: the body of POST
// /v1/instances/{instance}/shelve. The instance is stopped as by InstanceStop, its host
// sends what it knows of it to the registry, and then removes it (shelved_offloaded). With
// KeepOnHost it stays on its host and cannot be started there (shelved). Nothing is
// deleted.
type InstanceShelve struct {
	KeepOnHost     bool `json:"keep_on_host,omitempty"`
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

// InstanceUnshelve brings a shelved instance back and starts it: the body of POST
// /v1/instances/{instance}/unshelve. Host is the host that gets it. If Host is empty, the
// registry takes the host that had it last, and a daemon its own host.
type InstanceUnshelve struct {
	Host string `json:"host,omitempty"`
}

// startSuffix is what the id of the op that starts an instance has behind that of
// the unshelve which brought it back.
const startSuffix = ".start"

// StartOp returns the id of the op that starts an instance once the op unshelve has brought
// it back. The op exists as soon as unshelve is done.
func StartOp(unshelve string) string { return unshelve + startSuffix }

// AskedOp returns the id of the op that the caller asked for: the unshelve, if op is an id
// that StartOp returned, else op itself.
func AskedOp(op string) string { return strings.TrimSuffix(op, startSuffix) }

// InstanceLock keeps everybody from changing an instance until it is unlocked: the body of
// POST /v1/instances/{instance}/lock. Refusals quote Reason.
type InstanceLock struct {
	Reason string `json:"reason"`
}

// InstanceDefinition is everything that a host needs to have an instance.
type InstanceDefinition struct {
	// Domain is the definition of the domain, in the hypervisor's own format.
	Domain string `json:"domain"`
	// NVRAM holds the UEFI variables of the guest, compressed with gzip. It is empty if the
	// guest has none.
	NVRAM []byte `json:"nvram,omitempty"`
	// Disks describes, by device, each disk of the definition that is a volume, so that
	// another volume can be put in its place.
	Disks map[string]SlotDefinition `json:"disks,omitempty"`
	// Autostart says that the host starts the domain when it boots.
	Autostart bool `json:"autostart,omitempty"`
}

// InstanceTransition moves an instance between its host and the shelf: the body
// of POST /v1/instances/{instance}/transition. It is a compare and swap by a host,
// each step one transaction:
//
//   - stopped → shelved: the host stores Definition. It may not start the domain
//     from now on.
//   - shelved → shelved_offloaded: the host has seen that it has no such domain
//     any more. No host has the instance then.
//   - shelved_offloaded → shelved: the host takes the instance (unshelve). Of two
//     hosts one wins. Refused with root_volume_missing without a root volume.
//   - shelved → stopped: the host has the domain again as it should be; the
//     definition is dropped.
type InstanceTransition struct {
	From       InstanceState       `json:"from"`
	To         InstanceState       `json:"to"`
	Host       string              `json:"host"`
	Epoch      int64               `json:"epoch"`
	OpID       string              `json:"op_id"`
	Definition *InstanceDefinition `json:"definition,omitempty"`
}

// ShelvedInstance is the answer to a transition: the instance, and its definition if the
// host has to define the domain from it.
type ShelvedInstance struct {
	Instance    Instance            `json:"instance"`
	Definition  *InstanceDefinition `json:"definition,omitempty"`
	Attachments []Attachment        `json:"attachments"`
}

// PauseEstimate says what a move with all guests paused, or while they write, is expected to cost,
// so that an operator can decide: the answer to POST /v1/volumes/{volume}/migrate:estimate.
type PauseEstimate struct {
	VolumeID string `json:"volume_id"`
	// DowntimeSeconds is how long the guests are expected to stand still.
	DowntimeSeconds float64 `json:"downtime_seconds"`
	CopyBytes       int64   `json:"copy_bytes"`
	// DstFreeBytes is what was free in dst's pool when the host with the least there reported
	// last; left out if that is not known, or dst is a path.
	DstFreeBytes *int64 `json:"dst_free_bytes,omitempty" needs:"-"`
	// Instances are the instances whose guests will stand still, and what each needs of its
	// host.
	Instances []PausedInstance `json:"instances"`
}

// PausedInstance is an instance that is saved while its volume moves.
type PausedInstance struct {
	InstanceID   string        `json:"instance_id"`
	InstanceName string        `json:"instance_name"`
	Host         string        `json:"host"`
	State        InstanceState `json:"state"`
	// MemoryBytes is how much of its host's save directory the saved RAM may take; FreeBytes is
	// what is free there.
	MemoryBytes int64 `json:"memory_bytes"`
	FreeBytes   int64 `json:"free_bytes"`
	// SavedInMemory: the host keeps saved RAM on a tmpfs, so that it is lost if the host goes
	// down meanwhile, and the instance is stopped then, as after a power cut.
	SavedInMemory bool `json:"saved_in_memory,omitempty" needs:"-"`
}

// SavedInstance says what a host has done with one of its domains for a move with all
// guests paused: the answer of GET /v1/migrations/{migration}/saved at the daemon.
type SavedInstance struct {
	InstanceID   string `json:"instance_id"`
	InstanceName string `json:"instance_name"`
	VolumeID     string `json:"volume_id"`
	// Location is where the volume was when the guest was saved, or where the newest
	// restore that was asked for expects it.
	Location Location `json:"location"`
	// Asleep says that the domain is kept off for the move.
	Asleep bool `json:"asleep"`
	// AtRest says that the guest has stood still since it was suspended for the move: in a
	// process, in its save image, or off. If it is false, the guest may have run on.
	AtRest bool `json:"at_rest,omitempty"`
	// MovedTo is where the definition of a domain that is not asleep has the volume's disk, if
	// that is not Location: the volume has moved on since, or somebody has edited it.
	MovedTo string `json:"moved_to,omitempty" needs:"-"`
}

// The calls below come from the registry alone, in a move with all guests paused.
// Each is answered with 202 and its op, whose id is the Idempotency-Key; GET
// /v1/ops/{op} says when it is over: done, undone (nothing was changed) or
// needs_operator. A refusal below 500 says that nothing was changed either. The
// first try of a call has the id that is said here, with M the migration and I the
// instance; the n-th, from the second on, has "." and n behind it.

// InstanceSuspend has a host suspend an instance for a migration and keep it from being
// started: the body of POST /v1/instances/{instance}/suspend, with the id M.suspend.I. All
// guests of the migration are suspended before any is saved. It is also the body of POST
// /v1/instances/{instance}/check-save, with the id M.check.I, which makes every check and
// changes nothing: 200 says that the instance can be suspended and saved.
type InstanceSuspend struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
}

// InstanceSave has a host save an instance that a migration has suspended: the body of POST
// /v1/instances/{instance}/save, with the id M.save.I. The RAM goes to a file of the host,
// and no process has the volume open any more. An instance that is off stays off. It is
// guarded until it is resumed.
type InstanceSave struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
}

// InstanceRestore has a host restore an instance that was saved for a migration, with the
// volume at Location: the body of POST /v1/instances/{instance}/restore, with the id
// M.restore.I if Location is dst and M.back.I if it is src. Paused has to be true: the
// guest stands still until InstanceResume, and its guard and save image stay. For an
// instance that was off, the host only checks that it still is. With DiscardMemory (id
// M.discard.I) the host gives up the RAM instead, and the instance is off.
type InstanceRestore struct {
	MigrationID   string   `json:"migration_id"`
	VolumeID      string   `json:"volume_id"`
	Location      Location `json:"location"`
	Paused        bool     `json:"paused"`
	DiscardMemory bool     `json:"discard_memory,omitempty"`
}

// InstanceResume has a host return an instance to what it was before InstanceSuspend:
// running, paused or off. It is the body of POST /v1/instances/{instance}/resume, with the
// id M.resume.I. The save image and the guard are removed before the guest runs.
type InstanceResume struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	Location    Location `json:"location"`
}

// PausePermit asks the registry, immediately before a host acts on a guest for a move with
// all guests paused, whether the host may still do so: the body of POST
// /v1/migrations/{migration}/permit. A refusal is state_forbidden. A permission is good for
// this moment only, so each question has its own Idempotency-Key.
type PausePermit struct {
	InstanceID string `json:"instance_id"`
	// To is PermitSuspend, PermitRestore or PermitResume.
	To    string `json:"to"`
	Host  string `json:"host"`
	Epoch int64  `json:"epoch"`
}

// What a PausePermit may ask for.
const (
	PermitSuspend = "suspend"
	PermitRestore = "restore"
	PermitResume  = "resume"
)

// PauseEnd is the body of POST /v1/migrations/{migration}/complete and /cancel for a
// migration with all guests paused.
type PauseEnd struct {
	// DiscardMemory gives up the RAM of the guests that cannot be restored.
	DiscardMemory bool `json:"discard_memory,omitempty"`
}

// CopySaved has a host copy a volume while every guest that has it is saved: the body of
// POST /v1/migrations/{migration}/copy-saved, with the id M.copy. The host makes dst,
// copies, makes the copy durable, and verifies it as Verify says (empty is full). Dst has
// no path if it is to be made in a pool; the op's location then says where it was made. The
// host reports the progress as that of a migration with this id.
type CopySaved struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	VolumeName  string   `json:"volume_name"`
	Src         Location `json:"src"`
	Dst         Location `json:"dst"`
	CopyOptions `schema:"extensible"`
	// Overwrite is that of MigrationTarget.
	Overwrite bool `json:"overwrite,omitempty" needs:"-"`
}

// DropSaved has the host that made a copy remove one end of it: the body of POST
// /v1/migrations/{migration}/drop-saved. If Drop is DropDst (id M.drop), it removes what
// copy-saved made, and stops a copy that still runs. If Drop is DropSrc (id M.delete), it
// removes src after the volume has moved for good. Location is where the registry has that
// end; the host removes nothing else.
type DropSaved struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	Drop        string   `json:"drop" enum:"src,dst"`
	Location    Location `json:"location"`
}

// The ends of a copy that DropSaved may name.
const (
	DropSrc = "src"
	DropDst = "dst"
)
