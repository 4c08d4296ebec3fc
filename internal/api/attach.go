// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"

	"github.com/volferry/volferry/internal/shell"
)

// VolumeAttach attaches a volume to an instance (POST /v1/volumes/{volume}/attach). An empty
// Device means the next free device, an empty Mode rw. Root requests the root slot: it must be
// empty, and the instance stopped or shelved_offloaded. A volume that returns to an instance gets
// its previous disk settings, unless DefaultSettings is set.
type VolumeAttach struct {
	Instance        string `json:"instance"`
	Device          string `json:"device,omitempty"`
	Mode            Mode   `json:"mode,omitempty"`
	Root            bool   `json:"root,omitempty"`
	DefaultSettings bool   `json:"default_settings,omitempty"`
}

// WithDefaults fills in the default mode.
func (in VolumeAttach) WithDefaults() VolumeAttach {
	in.Mode = cmp.Or(in.Mode, ModeRW)
	return in
}

// DiskAttachment returns the requested attachment.
func (in VolumeAttach) DiskAttachment() DiskAttachment {
	return DiskAttachment{Mode: in.WithDefaults().Mode, Device: in.Device}
}

// VolumeDetach detaches a volume from an instance (POST /v1/volumes/{volume}/detach). Force
// ignores the attachment's state, but never ends an attachment while the guest has the disk.
type VolumeDetach struct {
	Instance string `json:"instance"`
	Force    bool   `json:"force,omitempty"`
}

// AttachmentReserve is the first step of an attach at the registry. One transaction checks every
// rule, reserves the volume, and creates the attachment in state reserved. The fencing tokens are
// Generation, the volume's generation that the caller saw, and Epoch, the epoch of the caller's
// host.
type AttachmentReserve struct {
	ID         string `json:"id"`
	VolumeID   string `json:"volume_id"`
	InstanceID string `json:"instance_id"`
	Device     string `json:"device"`
	Mode       Mode   `json:"mode"`
	Host       string `json:"host"`
	Epoch      int64  `json:"epoch"`
	Generation int64  `json:"generation"`
	OpID       string `json:"op_id"`
	// Root confirms that the caller wants the root slot; otherwise the registry refuses the slot.
	Root bool `json:"root,omitempty"`
}

// DiskAttachment returns the reserved attachment, without a boot index.
func (in AttachmentReserve) DiskAttachment() DiskAttachment {
	return DiskAttachment{Mode: in.Mode, Device: in.Device}
}

// Reserve returns a copy of the request in, with the mode and device of d.
func (d DiskAttachment) Reserve(in AttachmentReserve) AttachmentReserve {
	in.Mode, in.Device = d.Mode, d.Device
	return in
}

// AttachmentTransition changes the state of an attachment if the state is in From.
// AttachmentRelease ends the attachment.
type AttachmentTransition struct {
	From  []AttachmentState `json:"from"`
	To    AttachmentState   `json:"to"`
	Host  string            `json:"host"`
	Epoch int64             `json:"epoch"`
	OpID  string            `json:"op_id"`
}

// AttachmentRelease ends an attachment after its host has verified that the guest lacks the disk.
// Force ignores the attachment's state. During a migration of the volume the error is
// migration_active.
type AttachmentRelease struct {
	Host  string `json:"host"`
	Epoch int64  `json:"epoch"`
	OpID  string `json:"op_id"`
	Force bool   `json:"force,omitempty"`
	// Slot describes the detached disk, for a slot that stays empty and for the volume's next
	// attach to the instance.
	Slot *SlotDefinition `json:"slot,omitempty"`
}

// VolumeForget removes an unattached volume from the registry (POST /v1/volumes/{volume}/forget).
// Its image is not touched.
type VolumeForget struct {
	OpID string `json:"op_id,omitempty"`
}

// The migration policies of a retype.
const (
	RetypeNever    = "never"
	RetypeOnDemand = "on-demand"
)

// VolumeRetype changes the type of a volume (POST /v1/volumes/{volume}/retype). If the new type
// does not allow the volume's pool, MigrationPolicy decides: never (the default) refuses the
// retype, on-demand moves the volume. A change of multiattach of a volume in use is refused with
// in_use_retype.
//
// ToPool or ToPath moves the volume there in any case; the new type has to allow that location.
type VolumeRetype struct {
	Type            string `json:"type"`
	MigrationPolicy string `json:"migration_policy,omitempty" enum:"never,on-demand"`
	ToPool          string `json:"to_pool,omitempty"`
	ToPath          string `json:"to_path,omitempty"`
	// ToFormat is the format after the move. A change of the format causes a move.
	ToFormat Format `json:"to_format,omitempty"`
	// The other options apply to the move, as in MigrationTarget. Like the target they need the
	// policy on-demand.
	Method                  string `json:"method,omitempty" enum:"auto,overlay,mirror"`
	Verify                  string `json:"verify,omitempty" enum:"full,none"`
	Overwrite               bool   `json:"overwrite,omitempty"`
	BandwidthBytesPerSecond int64  `json:"bandwidth_bytes_per_second,omitempty"`
	DeleteSource            bool   `json:"delete_source,omitempty"`
	Pace                    string `json:"pace,omitempty" enum:"off,gentle,full"`
	Checkpoints             string `json:"checkpoints,omitempty" enum:"drop"`
}

// CopyOptions returns the options of a move's copy.
func (in VolumeRetype) CopyOptions() CopyOptions {
	return CopyOptions{BandwidthBytesPerSecond: in.BandwidthBytesPerSecond, Verify: in.Verify, Pace: in.Pace}
}

// The names of the policies.
const (
	PolicyMultiattach         = "multiattach"
	PolicyMultiattachBootable = "multiattach_bootable"
)

// Policy is a rule of the site that an operator enables or disables.
type Policy struct {
	Name        string `json:"name"`
	Enabled     bool   `json:"enabled"`
	Description string `json:"description"`
}

// PolicyUpdate is the body of PUT /v1/policies/{policy}.
type PolicyUpdate struct {
	Enabled bool `json:"enabled"`
}

// CheckStart refuses to start a migration at the attachment if no host has its instance. Such a
// volume moves like an unattached volume, because no guest can use the source.
func (a *Attachment) CheckStart() error {
	if a.Host != "" {
		return nil
	}
	return Errorf(CodeStateForbidden, "cannot start a migration at the attachment of volume %s: no host has its instance %s; move the volume with `%s`, with --external-copy if another tool is to copy it",
		a.VolumeName, a.InstanceName, shell.Line("volferryctl", "volume", "migrate", a.VolumeName))
}
