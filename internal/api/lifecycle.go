// SPDX-License-Identifier: Apache-2.0

package api

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

// InstanceLock keeps everybody from changing an instance until it is unlocked:
// the body of POST /v1/instances/{instance}/lock. Reason is what they will read.
type InstanceLock struct {
	Reason string `json:"reason"`
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

// InstanceSave has a host put an instance to rest for a migration, with its RAM in
// a file of the host, so that no process has the volume open: the body of POST
// /v1/instances/{instance}/save. It comes from the registry alone.
type InstanceSave struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
}

// InstanceRestore has a host wake an instance that was saved for a migration, with
// the volume at Location, as it was: running, paused or off. It is the body of POST
// /v1/instances/{instance}/restore.
type InstanceRestore struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	Location    Location `json:"location"`
}
