// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// InstanceStop shuts an instance down: the body of POST /v1/instances/{instance}/stop. The guest
// gets an ACPI request and TimeoutSeconds (0 means 120) to shut down; after that the error is
// instance_busy. Force cuts the power instead.
type InstanceStop struct {
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

// InstanceRepair makes the definition of an instance name its volumes: the body of POST
// /v1/instances/{instance}/repair. With SourceUnwritten the caller asserts that the guest has not
// run from the source of a moving volume. It only counts if no record of writes is kept for the
// source.
type InstanceRepair struct {
	SourceUnwritten bool `json:"source_unwritten,omitempty" needs:"-"`
}

// InstanceShelve shelves an instance: the body of POST /v1/instances/{instance}/shelve. The
// instance is stopped as by InstanceStop. Its host sends the definition to the registry and then
// removes the domain (shelved_offloaded). With KeepOnHost the domain stays on its host and cannot
// be started (shelved). No data is deleted.
type InstanceShelve struct {
	KeepOnHost     bool `json:"keep_on_host,omitempty"`
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

// InstanceUnshelve takes an instance from the shelf and starts it: the body of POST
// /v1/instances/{instance}/unshelve. Host is the host that gets it. If Host is empty, the registry
// chooses the instance's last host, and a daemon its own host.
type InstanceUnshelve struct {
	Host string `json:"host,omitempty"`
}

// startSuffix is the suffix of the id of the op that starts an instance, after the id of its
// unshelve.
const startSuffix = ".start"

// StartOp returns the id of the op that starts an instance after the op unshelve. The op exists as
// soon as unshelve is done.
func StartOp(unshelve string) string { return unshelve + startSuffix }

// AskedOp returns the id of the requested op: the unshelve if op is an id of StartOp, else op
// itself.
func AskedOp(op string) string { return strings.TrimSuffix(op, startSuffix) }

// InstanceLock refuses all changes of an instance until it is unlocked: the body of POST
// /v1/instances/{instance}/lock. Refusals quote Reason.
type InstanceLock struct {
	Reason string `json:"reason"`
}

// InstanceDefinition is all that a host needs to define an instance.
type InstanceDefinition struct {
	// Domain is the definition of the domain, in the hypervisor's format.
	Domain string `json:"domain"`
	// NVRAM holds the guest's UEFI variables, compressed with gzip. It is empty if the guest has
	// none.
	NVRAM []byte `json:"nvram,omitempty"`
	// Disks describes each disk of the definition that is a volume, by device, so that another
	// volume can replace it.
	Disks map[string]SlotDefinition `json:"disks,omitempty"`
	// Autostart: the host starts the domain when it boots.
	Autostart bool `json:"autostart,omitempty"`
}

// InstanceTransition moves an instance between its host and the shelf: the body of POST
// /v1/instances/{instance}/transition. A host makes it as a compare-and-swap; each step is one
// transaction:
//
//   - stopped → shelved: the host stores Definition, and may not start the domain from now on.
//   - shelved → shelved_offloaded: the host has verified that it no longer has the domain. No host
//     has the instance then.
//   - shelved_offloaded → shelved: the host takes the instance (unshelve). Of two hosts one wins.
//     The error is root_volume_missing if there is no root volume.
//   - shelved → stopped: the host has the complete domain again; the registry deletes the
//     definition.
type InstanceTransition struct {
	From       InstanceState       `json:"from"`
	To         InstanceState       `json:"to"`
	Host       string              `json:"host"`
	Epoch      int64               `json:"epoch"`
	OpID       string              `json:"op_id"`
	Definition *InstanceDefinition `json:"definition,omitempty"`
}

// ShelvedInstance is the answer to a transition: the instance, and its definition if the host has
// to define the domain.
type ShelvedInstance struct {
	Instance    Instance            `json:"instance"`
	Definition  *InstanceDefinition `json:"definition,omitempty"`
	Attachments []Attachment        `json:"attachments"`
}

// PauseEstimate is the expected cost of a move with all guests paused, or while all guests write:
// the answer to POST /v1/volumes/{volume}/migrate:estimate.
type PauseEstimate struct {
	VolumeID string `json:"volume_id"`
	// DowntimeSeconds is how long the guests are expected to be paused.
	DowntimeSeconds float64 `json:"downtime_seconds"`
	CopyBytes       int64   `json:"copy_bytes"`
	// DstFreeBytes is the least free space in the destination's pool that a host has last reported;
	// absent if it is unknown or the destination is a path.
	DstFreeBytes *int64 `json:"dst_free_bytes,omitempty" needs:"-"`
	// Instances are the instances with guests that will be paused, and the needs of each on its
	// host.
	Instances []PausedInstance `json:"instances"`
}

// PausedInstance is an instance that is saved while its volume moves.
type PausedInstance struct {
	InstanceID   string        `json:"instance_id"`
	InstanceName string        `json:"instance_name"`
	Host         string        `json:"host"`
	State        InstanceState `json:"state"`
	// MemoryBytes is how much space the saved RAM may take in the host's save directory; FreeBytes
	// is the free space there.
	MemoryBytes int64 `json:"memory_bytes"`
	FreeBytes   int64 `json:"free_bytes"`
	// SavedInMemory: the host keeps saved RAM on a tmpfs. If the host goes down during the move,
	// the RAM is lost and the instance is stopped, as after a power cut.
	SavedInMemory bool `json:"saved_in_memory,omitempty" needs:"-"`
}

// SavedInstance is the state of a domain that a host saves for a move with all guests paused: the
// answer of GET /v1/migrations/{migration}/saved at the daemon.
type SavedInstance struct {
	InstanceID   string `json:"instance_id"`
	InstanceName string `json:"instance_name"`
	VolumeID     string `json:"volume_id"`
	// Location is the location of the volume when the guest was saved, or the location in the
	// newest requested restore.
	Location Location `json:"location"`
	// Asleep: the domain is kept off for the move.
	Asleep bool `json:"asleep"`
	// AtRest: the guest has not run since it was suspended for the move. It is suspended in a
	// process, in its save image, or off. If it is false, the guest may have run.
	AtRest bool `json:"at_rest,omitempty"`
	// MovedTo is the location of the volume's disk in the definition of a domain that is not
	// asleep, if it differs from Location: the volume has moved again, or another program has
	// edited the definition.
	MovedTo string `json:"moved_to,omitempty" needs:"-"`
}

// Only the registry makes the calls below, in a move with all guests paused. Each is answered with
// 202 and its op; the op's id is the Idempotency-Key. GET /v1/ops/{op} returns the op's end: done,
// undone (nothing was changed) or needs_operator. A refusal with a status below 500 also means that
// nothing was changed. The first try of a call has the id given below, with M the migration and I
// the instance; the n-th try, from the second on, has the suffix "." and n.

// InstanceSuspend makes a host suspend an instance for a migration and guard it against a start:
// the body of POST /v1/instances/{instance}/suspend, with the id M.suspend.I. All guests of the
// migration are suspended before any is saved. It is also the body of POST
// /v1/instances/{instance}/check-save, with the id M.check.I, which makes every check and changes
// nothing: 200 means that the instance can be suspended and saved.
type InstanceSuspend struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
}

// InstanceSave makes a host save an instance that a migration has suspended: the body of POST
// /v1/instances/{instance}/save, with the id M.save.I. The RAM is written to a file of the host,
// and afterwards no process has the volume open. An instance that is off stays off. The instance is
// guarded until its resume.
type InstanceSave struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
}

// InstanceRestore makes a host restore an instance that was saved for a migration, with the volume
// at Location: the body of POST /v1/instances/{instance}/restore, with the id M.restore.I if
// Location is the destination and M.back.I if it is the source. Paused has to be true: the guest
// stays paused until InstanceResume, and its guard and save image stay. If the instance was off,
// the host only checks that it still is. With DiscardMemory (id M.discard.I) the host discards the
// RAM instead, and the instance is off.
type InstanceRestore struct {
	MigrationID   string   `json:"migration_id"`
	VolumeID      string   `json:"volume_id"`
	Location      Location `json:"location"`
	Paused        bool     `json:"paused"`
	DiscardMemory bool     `json:"discard_memory,omitempty"`
}

// InstanceResume makes a host return an instance to its state before InstanceSuspend: running,
// paused or off. It is the body of POST /v1/instances/{instance}/resume, with the id M.resume.I.
// The save image and the guard are removed before the guest runs.
type InstanceResume struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	Location    Location `json:"location"`
}

// PausePermit asks the registry, immediately before a host acts on a guest for a move with all
// guests paused, whether the host may still do so: the body of POST
// /v1/migrations/{migration}/permit. A refusal is state_forbidden. A permission is valid for this
// moment only, so each request has its own Idempotency-Key.
type PausePermit struct {
	InstanceID string `json:"instance_id"`
	// To is PermitSuspend, PermitRestore or PermitResume.
	To    string `json:"to"`
	Host  string `json:"host"`
	Epoch int64  `json:"epoch"`
}

// The values of PausePermit.To.
const (
	PermitSuspend = "suspend"
	PermitRestore = "restore"
	PermitResume  = "resume"
)

// PauseEnd is the body of POST /v1/migrations/{migration}/complete and /cancel for a migration with
// all guests paused.
type PauseEnd struct {
	// DiscardMemory discards the RAM of the guests that cannot be restored.
	DiscardMemory bool `json:"discard_memory,omitempty"`
}

// CopySaved makes a host copy a volume while every guest that has it is saved: the body of POST
// /v1/migrations/{migration}/copy-saved, with the id M.copy. The host creates Dst, copies, makes
// the copy durable, and verifies it as requested (empty Verify is full). A Dst to be created in a
// pool has no path; the op's location has it. The host reports the progress under the migration's
// id.
type CopySaved struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	VolumeName  string   `json:"volume_name"`
	Src         Location `json:"src"`
	Dst         Location `json:"dst"`
	CopyOptions `schema:"extensible"`
	// Overwrite is as in MigrationTarget.
	Overwrite bool `json:"overwrite,omitempty" needs:"-"`
}

// DropSaved makes the host of a copy remove one end of the copy: the body of POST
// /v1/migrations/{migration}/drop-saved. With DropDst (id M.drop) it removes the image that
// copy-saved created, and stops a running copy. With DropSrc (id M.delete) it removes the source
// after the volume has moved for good. Location is the registry's location of that end; the host
// removes nothing else.
type DropSaved struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	Drop        string   `json:"drop" enum:"src,dst"`
	Location    Location `json:"location"`
}

// The values of DropSaved.Drop.
const (
	DropSrc = "src"
	DropDst = "dst"
)
