// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// InstanceStop shuts an instance down (POST /v1/instances/{instance}/stop). The guest gets an ACPI
// request; after TimeoutSeconds (0 means 120) the error is instance_busy. Force cuts the power
// instead.
type InstanceStop struct {
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

// InstanceRepair makes the definition of an instance name its volumes (POST
// /v1/instances/{instance}/repair). SourceUnwritten asserts that the guest has not run from the
// source of a moving volume; the assertion counts only if the host keeps no record of writes for
// the source.
type InstanceRepair struct {
	SourceUnwritten bool `json:"source_unwritten,omitempty"`
}

// InstanceShelve stops an instance as InstanceStop does, and shelves it (POST
// /v1/instances/{instance}/shelve). Its host sends the definition to the registry and then removes
// the domain (shelved_offloaded). With KeepOnHost the domain stays and cannot be started
// (shelved). No data is deleted.
type InstanceShelve struct {
	KeepOnHost     bool `json:"keep_on_host,omitempty"`
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

// InstanceUnshelve takes an instance from the shelf and starts it on Host (POST
// /v1/instances/{instance}/unshelve). If Host is empty, the registry chooses the instance's last
// host, and a daemon its own host.
type InstanceUnshelve struct {
	Host string `json:"host,omitempty"`
}

const startSuffix = ".start"

// StartOp returns the id of the op that starts an instance after the op with the id unshelve. The
// op exists as soon as that unshelve is done.
func StartOp(unshelve string) string { return unshelve + startSuffix }

// AskedOp returns the id of the requested op: the unshelve's if op is an id from StartOp, else op.
func AskedOp(op string) string { return strings.TrimSuffix(op, startSuffix) }

// InstanceLock makes Volferry refuse all changes of an instance until it is unlocked (POST
// /v1/instances/{instance}/lock). Refusals quote Reason.
type InstanceLock struct {
	Reason string `json:"reason"`
}

// InstanceDefinition has everything that a host needs to define an instance.
type InstanceDefinition struct {
	// Domain is the definition in the hypervisor's format.
	Domain string `json:"domain"`
	// NVRAM holds the guest's UEFI variables, if any, compressed with gzip.
	NVRAM []byte `json:"nvram,omitempty"`
	// Disks describes, by device, each disk that is a volume, so that another volume can replace
	// it.
	Disks map[string]SlotDefinition `json:"disks,omitempty"`
	// Autostart: the host starts the domain when it boots.
	Autostart bool `json:"autostart,omitempty"`
}

// InstanceTransition moves an instance between its host and the shelf (POST
// /v1/instances/{instance}/transition). Each step is one compare-and-swap:
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

// ShelvedInstance is the answer to a transition. Definition is set if the host has to define the
// domain.
type ShelvedInstance struct {
	Instance    Instance            `json:"instance"`
	Definition  *InstanceDefinition `json:"definition,omitempty"`
	Attachments []Attachment        `json:"attachments"`
}

// PauseEstimate is the expected cost of a move with all guests paused, or while all guests write
// (POST /v1/volumes/{volume}/migrate:estimate).
type PauseEstimate struct {
	VolumeID        string  `json:"volume_id"`
	DowntimeSeconds float64 `json:"downtime_seconds"`
	CopyBytes       int64   `json:"copy_bytes"`
	// DstFreeBytes is the least free space in the destination's pool in the hosts' last reports;
	// absent if unknown or for a path.
	DstFreeBytes *int64           `json:"dst_free_bytes,omitempty"`
	Instances    []PausedInstance `json:"instances"`
}

// PausedInstance is an instance that is saved while its volume moves.
type PausedInstance struct {
	InstanceID   string        `json:"instance_id"`
	InstanceName string        `json:"instance_name"`
	Host         string        `json:"host"`
	State        InstanceState `json:"state"`
	// MemoryBytes is the most space that the saved RAM may take in the host's save directory;
	// FreeBytes is free there.
	MemoryBytes int64 `json:"memory_bytes"`
	FreeBytes   int64 `json:"free_bytes"`
	// SavedInMemory: the host keeps saved RAM on a tmpfs. If the host goes down during the move,
	// the RAM is lost.
	SavedInMemory bool `json:"saved_in_memory,omitempty"`
}

// SavedInstance is the state of a domain that a host saves for a move with all guests paused (GET
// /v1/migrations/{migration}/saved at the daemon).
type SavedInstance struct {
	InstanceID   string   `json:"instance_id"`
	InstanceName string   `json:"instance_name"`
	VolumeID     string   `json:"volume_id"`
	Location     Location `json:"location"`
	// Asleep: the domain is kept off for the move.
	Asleep bool `json:"asleep"`
	// AtRest: the guest has not run since it was suspended. It is in its suspended process, in its
	// save image, or off.
	AtRest bool `json:"at_rest,omitempty"`
	// MovedTo is the location of the volume's disk in the definition of a domain that is not
	// asleep, if it differs from Location: the volume has moved again, or another program has
	// edited the definition.
	MovedTo string `json:"moved_to,omitempty"`
}

// Only the registry makes the calls below, in a move with all guests paused. The answer is 202 and
// an op with the Idempotency-Key as its id. GET /v1/ops/{op} returns the op's end: done, undone
// (nothing was changed) or needs_operator. A refusal with a status below 500 also means that
// nothing was changed. The first try of a call has the op id given below; the n-th try has the
// suffix "." and n.

// InstanceSuspend makes a host suspend an instance for a migration and guard it against a start
// (POST /v1/instances/{instance}/suspend, op id MIGRATION.suspend.INSTANCE). All guests of the
// migration are suspended before any is saved. POST /v1/instances/{instance}/check-save (op id
// MIGRATION.check.INSTANCE) makes every check and changes nothing: 200 means that the instance can
// be suspended and saved.
type InstanceSuspend struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
}

// InstanceSave makes a host save a suspended instance (POST /v1/instances/{instance}/save, op id
// MIGRATION.save.INSTANCE). The RAM is written to a file; afterwards no process has the volume
// open. An instance that is off stays off. Until InstanceResume the instance cannot be started.
type InstanceSave struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
}

// InstanceRestore makes a host restore a saved instance with the volume at Location (POST
// /v1/instances/{instance}/restore, op id MIGRATION.restore.INSTANCE if Location is the
// destination and MIGRATION.back.INSTANCE if it is the source). Until InstanceResume the guest
// stays paused, and keeps its guard and save image. If the instance was off, the host only checks
// that it still is. With DiscardMemory (op id MIGRATION.discard.INSTANCE) the host discards the
// RAM instead, and the instance is off.
type InstanceRestore struct {
	MigrationID   string   `json:"migration_id"`
	VolumeID      string   `json:"volume_id"`
	Location      Location `json:"location"`
	DiscardMemory bool     `json:"discard_memory,omitempty"`
}

// InstanceResume returns an instance to its state before InstanceSuspend: running, paused or off
// (POST /v1/instances/{instance}/resume, op id MIGRATION.resume.INSTANCE). The save image and the
// guard are removed before the guest runs.
type InstanceResume struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	Location    Location `json:"location"`
}

// PausePermit asks the registry whether a host may still act on a guest for a move with all guests
// paused (POST /v1/migrations/{migration}/permit). The host sends it immediately before the
// action. A refusal is state_forbidden. A permission is valid for this moment only, so each
// request has its own Idempotency-Key.
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

// PauseEnd ends a migration with all guests paused (POST /v1/migrations/{migration}/complete and
// /cancel).
type PauseEnd struct {
	// DiscardMemory discards the RAM of the guests that cannot be restored.
	DiscardMemory bool `json:"discard_memory,omitempty"`
}

// CopySaved makes a host copy a volume while every guest that has it is saved (POST
// /v1/migrations/{migration}/copy-saved, op id MIGRATION.copy). The host creates Dst, copies,
// makes the copy durable, and verifies it as requested (empty Verify is full). If Dst is to be
// created in a pool, it has no path; Op.Location has the path. Progress is reported under the
// migration's id.
type CopySaved struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	VolumeName  string   `json:"volume_name"`
	Src         Location `json:"src"`
	Dst         Location `json:"dst"`
	CopyOptions `schema:"extensible"`
	Overwrite   bool `json:"overwrite,omitempty"`
}

// DropSaved makes the host that copies remove the destination or the source (POST
// /v1/migrations/{migration}/drop-saved). DropDst (op id MIGRATION.drop) removes the image that
// copy-saved created, and stops a running copy. DropSrc (op id MIGRATION.delete) removes the
// source after the volume has moved for good. Location is the image's location in the registry;
// the host removes nothing else.
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
