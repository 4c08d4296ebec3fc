// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// InstanceStop asks for an instance to be off: the body of POST
// /v1/instances/{instance}/stop. The guest is asked (ACPI) and has
// TimeoutSeconds (0 is 120) to obey; one that does not is instance_busy. Force
// does not ask: it is a power cut.
type InstanceStop struct {
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

// InstanceShelve puts an instance away: the body of POST
// /v1/instances/{instance}/shelve. It is stopped as by InstanceStop, what its host
// knows of it goes to the registry, and it leaves the host (shelved_offloaded).
// With KeepOnHost it stays on its host and cannot be started there (shelved).
// Nothing is deleted.
type InstanceShelve struct {
	KeepOnHost     bool `json:"keep_on_host,omitempty"`
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

// InstanceUnshelve brings a shelved instance back and starts it: the body of POST
// /v1/instances/{instance}/unshelve. Host names the host that gets it; empty is the
// one that had it last, or the one that is asked.
type InstanceUnshelve struct {
	Host string `json:"host,omitempty"`
}

// startSuffix is what the id of the op that starts an instance has behind that of
// the unshelve which brought it back.
const startSuffix = ".start"

// StartOp returns the id of the op that starts an instance once the op unshelve has brought
// it back. The op exists as soon as unshelve is done.
func StartOp(unshelve string) string { return unshelve + startSuffix }

// AskedOp is the id of the op that was asked for, of which op is a part: the
// unshelve, for what StartOp returns, else op itself.
func AskedOp(op string) string { return strings.TrimSuffix(op, startSuffix) }

// InstanceLock keeps everybody from changing an instance until it is unlocked:
// the body of POST /v1/instances/{instance}/lock. Reason is what they will read.
type InstanceLock struct {
	Reason string `json:"reason"`
}

// InstanceDefinition is everything that a host needs to have an instance.
type InstanceDefinition struct {
	// Domain is the domain's definition in the hypervisor's words.
	Domain string `json:"domain"`
	// NVRAM are the variables of a UEFI guest, compressed with gzip; empty if it
	// has none.
	NVRAM []byte `json:"nvram,omitempty"`
	// Disks says of each disk of the definition that is a volume, by its device,
	// what has to be known to put another volume there.
	Disks map[string]SlotDefinition `json:"disks,omitempty"`
	// Autostart: the host starts the domain when it boots.
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

// ShelvedInstance is the answer to a transition: the instance, and where its host
// has to make the domain, what it is made of.
type ShelvedInstance struct {
	Instance    Instance            `json:"instance"`
	Definition  *InstanceDefinition `json:"definition,omitempty"`
	Attachments []Attachment        `json:"attachments"`
}

// PauseEstimate is what a move with all guests paused is expected to cost, for
// the operator to decide on: the answer to POST
// /v1/volumes/{volume}/migrate:estimate.
type PauseEstimate struct {
	VolumeID string `json:"volume_id"`
	// DowntimeSeconds is how long the guests are expected to stand still.
	DowntimeSeconds float64 `json:"downtime_seconds"`
	CopyBytes       int64   `json:"copy_bytes"`
	// Instances are those that will stand still, with what each host needs.
	Instances []PausedInstance `json:"instances"`
}

// PausedInstance is an instance that is saved while its volume moves.
type PausedInstance struct {
	InstanceID   string        `json:"instance_id"`
	InstanceName string        `json:"instance_name"`
	Host         string        `json:"host"`
	State        InstanceState `json:"state"`
	// MemoryBytes is how much of its host's disk its RAM may take; FreeBytes is
	// what the host has there.
	MemoryBytes int64 `json:"memory_bytes"`
	FreeBytes   int64 `json:"free_bytes"`
}

// SavedInstance is what a host was asked to do with one of its domains for a move with
// all guests paused: the answer of GET /v1/migrations/{migration}/saved at its daemon.
type SavedInstance struct {
	InstanceID   string `json:"instance_id"`
	InstanceName string `json:"instance_name"`
	VolumeID     string `json:"volume_id"`
	// Location is where the volume was when it was saved, or has to be for the newest
	// waking that was asked for.
	Location Location `json:"location"`
	// Asleep: it is kept off for the move.
	Asleep bool `json:"asleep"`
	// AtRest: it stands still since it was suspended for the move, in a process, in its
	// file, or off. Where this is false it may have run on.
	AtRest bool `json:"at_rest,omitempty"`
}

// The calls below come from the registry alone, in a move with all guests paused.
// Each is answered with 202 and its op, whose id is the Idempotency-Key; GET
// /v1/ops/{op} says when it is over: done, undone (nothing was changed) or
// needs_operator. A refusal below 500 says that nothing was changed either. The
// first try of a call has the id that is said here, with M the migration and I the
// instance; the n-th, from the second on, has "." and n behind it.

// InstanceSuspend has a host suspend an instance for a migration, and keep it from being
// started: the body of POST /v1/instances/{instance}/suspend, with the id M.suspend.I.
// All guests of the migration stand still before any is saved. It is the body of POST
// /v1/instances/{instance}/check-save too, with the id M.check.I, which makes every
// check and changes nothing: 200 says that the instance can be suspended and saved.
type InstanceSuspend struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
}

// InstanceSave has a host put an instance to rest for a migration that has suspended
// it, with its RAM in a file of the host, so that no process has the volume open: the
// body of POST /v1/instances/{instance}/save, with the id M.save.I. One that is off
// stays off. Until it is resumed the instance is guarded.
type InstanceSave struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
}

// InstanceRestore has a host restore an instance that was saved for a migration, with
// the volume at Location. It is the body of POST /v1/instances/{instance}/restore, with
// the id M.restore.I where Location is dst and M.back.I where it is src. Paused has to
// be true: the instance stands still until InstanceResume, with its guard and the file
// of its RAM. For an instance that was not saved it only looks that this is so. With
// DiscardMemory (id M.discard.I) its RAM is given up instead: it is off then.
type InstanceRestore struct {
	MigrationID   string   `json:"migration_id"`
	VolumeID      string   `json:"volume_id"`
	Location      Location `json:"location"`
	Paused        bool     `json:"paused"`
	DiscardMemory bool     `json:"discard_memory,omitempty"`
}

// InstanceResume has a host let an instance go on as it was before InstanceSuspend:
// running, paused or off. It is the body of POST /v1/instances/{instance}/resume, with
// the id M.resume.I. The file of its RAM and its guard are gone before it runs.
type InstanceResume struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	Location    Location `json:"location"`
}

// PausePermit is how a host asks whether it may do what a move with all guests paused
// wants of a guest, immediately before it does: the body of POST
// /v1/migrations/{migration}/permit. A refusal is state_forbidden. A permission holds
// for the moment, so each question has an Idempotency-Key of its own.
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
	// DiscardMemory gives up the RAM of the guests that could not be restored.
	DiscardMemory bool `json:"discard_memory,omitempty"`
}

// CopySaved has a host copy a volume while every guest that has it is saved: the
// body of POST /v1/migrations/{migration}/copy-saved, with the id M.copy. It makes
// dst, copies, makes it durable and verifies as Verify says (empty is full). Dst has
// no path where it is to be made in a pool; the op's location is dst as it was made.
// Its progress is in the reports of the host, as a migration with this id.
type CopySaved struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	VolumeName  string   `json:"volume_name"`
	Src         Location `json:"src"`
	Dst         Location `json:"dst"`
	CopyOptions `schema:"extensible"`
}

// DropSaved has the host of a copy remove one end of it: the body of POST
// /v1/migrations/{migration}/drop-saved. Drop is DropDst, with the id M.drop,
// for what copy-saved made, if it made anything (a copy that still runs is stopped
// first); or DropSrc, with the id M.delete, after the volume has moved for good. Location is that end as the registry knows it; what is not the end of this
// host's copy is never removed.
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
