// SPDX-License-Identifier: Apache-2.0

package api

// MigrationPlan describes a move before it is requested (POST /v1/volumes/{volume}/migrate:plan).
// Nothing is reserved, so the move itself may differ.
type MigrationPlan struct {
	VolumeID   string `json:"volume_id"`
	VolumeName string `json:"volume_name"`
	// InstanceID, InstanceName and Device identify the attachment that moves, if any.
	InstanceID         string   `json:"instance_id,omitempty"`
	InstanceName       string   `json:"instance_name,omitempty"`
	Device             string   `json:"device,omitempty"`
	Src                Location `json:"src"`
	Dst                Location `json:"dst"`
	CreatesDestination bool     `json:"creates_destination"`
	// ConnectsDestination: the destination is a volume of a target without a device yet. Its
	// existence and size are checked only after the move has connected it.
	ConnectsDestination bool `json:"connects_destination,omitempty"`
	// DstLeftBy is the migration that has released the image that this move overwrites, or empty.
	DstLeftBy string `json:"dst_left_by,omitempty"`
	// Method is overlay, mirror, or offline if no instance has the volume.
	Method       string `json:"method"`
	Verify       string `json:"verify"`
	DeleteSource bool   `json:"delete_source"`
	// Allocation is AllocationThick or AllocationThin; absent if the destination is no file or
	// exists.
	Allocation string `json:"allocation,omitempty"`
	// NeededBytes is the most space that the destination may take in its pool or file system,
	// FreeBytes the free space there; both are absent for an existing device.
	NeededBytes *int64 `json:"needed_bytes,omitempty"`
	FreeBytes   *int64 `json:"free_bytes,omitempty"`
	// Warning is about a problem that does not prevent the move: the volume may outgrow the free
	// space at the destination, or an op that the move has to wait for needs an operator.
	Warning string `json:"warning,omitempty"`
	// OverlayDir and OverlayFreeBytes are for the method overlay only.
	OverlayDir       string `json:"overlay_dir,omitempty"`
	OverlayFreeBytes *int64 `json:"overlay_free_bytes,omitempty"`
}

// RetypePlan describes a retype before it is requested (POST /v1/volumes/{volume}/retype:plan).
type RetypePlan struct {
	VolumeID   string   `json:"volume_id"`
	VolumeName string   `json:"volume_name"`
	FromType   string   `json:"from_type"`
	ToType     string   `json:"to_type"`
	Location   Location `json:"location"`
	// Move is absent if the volume stays.
	Move *MigrationPlan `json:"move,omitempty"`
}
