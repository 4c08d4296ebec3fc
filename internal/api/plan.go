// SPDX-License-Identifier: Apache-2.0

package api

// MigrationPlan says what a move would do, the answer to POST /v1/volumes/{volume}/migrate:plan.
// Nothing was done for it and nothing is reserved: what it says may have changed when the move
// is asked for.
type MigrationPlan struct {
	VolumeID   string `json:"volume_id"`
	VolumeName string `json:"volume_name"`
	// InstanceID, InstanceName and Device are of the attachment that moves, empty if there is none.
	InstanceID   string   `json:"instance_id,omitempty"`
	InstanceName string   `json:"instance_name,omitempty"`
	Device       string   `json:"device,omitempty"`
	Src          Location `json:"src"`
	Dst          Location `json:"dst"`
	// CreatesDestination: dst is not there yet.
	CreatesDestination bool `json:"creates_destination"`
	// ConnectsDestination: dst is a volume of a target and has no device yet. The move connects it;
	// whether it is there, and its size, are seen only then.
	ConnectsDestination bool `json:"connects_destination,omitempty"`
	// DstLeftBy is the migration that has left the image that is overwritten, empty if none has.
	DstLeftBy string `json:"dst_left_by,omitempty"`
	// Method is overlay, mirror, or offline: no instance has the volume.
	Method       string `json:"method"`
	Verify       string `json:"verify"`
	DeleteSource bool   `json:"delete_source"`
	// Allocation is AllocationThick if the file that the move makes gets room for all of the volume
	// at once, AllocationThin if not; left out for what is no file, or is there already.
	Allocation string `json:"allocation,omitempty"`
	// NeededBytes is what dst may take of its pool or file system at most, FreeBytes what is
	// free there; both are left out for a device that is there.
	NeededBytes *int64 `json:"needed_bytes,omitempty"`
	FreeBytes   *int64 `json:"free_bytes,omitempty"`
	// Warning says what may go wrong after the move, and does not keep it from being made: the
	// volume may grow to more than is free where it goes. It also names an op that waits for an
	// operator, and that the move has to wait for.
	Warning string `json:"warning,omitempty"`
	// OverlayDir is where the guest writes meanwhile, OverlayFreeBytes what is free there; left
	// out unless the method is overlay.
	OverlayDir       string `json:"overlay_dir,omitempty"`
	OverlayFreeBytes *int64 `json:"overlay_free_bytes,omitempty"`
}

// RetypePlan is what a retype would do: the answer to POST /v1/volumes/{volume}/retype:plan.
type RetypePlan struct {
	VolumeID   string   `json:"volume_id"`
	VolumeName string   `json:"volume_name"`
	FromType   string   `json:"from_type"`
	ToType     string   `json:"to_type"`
	Location   Location `json:"location"`
	// Move is the move at whose end the volume has its new type; left out if it stays where it is.
	Move *MigrationPlan `json:"move,omitempty"`
}
