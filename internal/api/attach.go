// SPDX-License-Identifier: Apache-2.0

package api

import "cmp"

// VolumeAttach asks to attach a volume to an instance: the body of POST
// /v1/volumes/{volume}/attach. If Device is empty, Volferry takes the next free device; if
// Mode is empty, it is rw. Root attaches the volume to the slot with boot index 0, which
// must be empty; the instance must be stopped or shelved_offloaded. A volume that was at
// the instance before comes back with the settings that its disk had; DefaultSettings makes
// it a new disk.
type VolumeAttach struct {
	Instance        string `json:"instance"`
	Device          string `json:"device,omitempty"`
	Mode            Mode   `json:"mode,omitempty"`
	Root            bool   `json:"root,omitempty"`
	DefaultSettings bool   `json:"default_settings,omitempty"`
}

// WithDefaults returns the request with the mode that it means, if it says none.
func (in VolumeAttach) WithDefaults() VolumeAttach {
	in.Mode = cmp.Or(in.Mode, ModeRW)
	return in
}

// DiskAttachment returns how the volume is to be attached. Device is empty if Volferry
// chooses it.
func (in VolumeAttach) DiskAttachment() DiskAttachment {
	return DiskAttachment{Mode: in.WithDefaults().Mode, Device: in.Device}
}

// VolumeDetach asks to detach a volume from an instance: the body of POST
// /v1/volumes/{volume}/detach. Force overlooks the state of the attachment. It never
// overlooks that the guest has the disk.
type VolumeDetach struct {
	Instance string `json:"instance"`
	Force    bool   `json:"force,omitempty"`
}

// AttachmentReserve is the first step of an attach at the registry. In one transaction
// every rule is checked, the volume is kept for this instance, and the attachment gets the
// state reserved. Generation is the volume's generation that the caller saw, Epoch the
// epoch of the caller's host: they are the fencing tokens of this attachment.
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
	// Root says that the caller means to take the root slot, if Device is that slot: nobody
	// else is given it.
	Root bool `json:"root,omitempty"`
}

// DiskAttachment returns what is reserved. The slot has the boot index.
func (in AttachmentReserve) DiskAttachment() DiskAttachment {
	return DiskAttachment{Mode: in.Mode, Device: in.Device}
}

// Reserve returns in for an attachment as d.
func (d DiskAttachment) Reserve(in AttachmentReserve) AttachmentReserve {
	in.Mode, in.Device = d.Mode, d.Device
	return in
}

// AttachmentTransition moves an attachment to another state if it is in one of
// From: connect (reserved to attaching), complete (attaching to attached), begin
// to detach (attached to detaching), give that up (detaching to attached), or
// error. Its end is AttachmentRelease.
type AttachmentTransition struct {
	From  []AttachmentState `json:"from"`
	To    AttachmentState   `json:"to"`
	Host  string            `json:"host"`
	Epoch int64             `json:"epoch"`
	OpID  string            `json:"op_id"`
}

// AttachmentRelease ends an attachment, once its host has seen that the guest does not have
// the disk. Force overlooks the state of the attachment. The release is refused with
// migration_active while a migration moves the volume.
type AttachmentRelease struct {
	Host  string `json:"host"`
	Epoch int64  `json:"epoch"`
	OpID  string `json:"op_id"`
	Force bool   `json:"force,omitempty"`
	// Slot describes the disk that was there. The registry keeps it with a slot that stays,
	// and for the next attach of this volume to the instance.
	Slot *SlotDefinition `json:"slot,omitempty"`
}

// VolumeForget takes a volume that is not attached out of the registry: the body of
// POST /v1/volumes/{volume}/forget. Its image, if it has one, is left as it is.
type VolumeForget struct {
	OpID string `json:"op_id,omitempty"`
}

// The words for the migration policy of a retype.
const (
	RetypeNever    = "never"
	RetypeOnDemand = "on-demand"
)

// VolumeRetype gives a volume another type: the body of POST /v1/volumes/{volume}/retype.
// If the new type does not allow the pool where the volume is, MigrationPolicy decides:
// never (the default) refuses the retype, on-demand moves the volume. A retype that changes
// multiattach of a volume in use is refused with in_use_retype.
//
// With ToPool or ToPath the volume is there afterwards: it is moved even if it could stay. The
// new type has to allow that place.
type VolumeRetype struct {
	Type            string `json:"type"`
	MigrationPolicy string `json:"migration_policy,omitempty" enum:"never,on-demand"`
	ToPool          string `json:"to_pool,omitempty" needs:"retype_target"`
	ToPath          string `json:"to_path,omitempty" needs:"retype_target"`
	// ToFormat is the format that the volume gets by its move; one that it does not have is a
	// reason to move it.
	ToFormat Format `json:"to_format,omitempty" needs:"retype_format"`
	// Method, Verify, Overwrite, BandwidthBytesPerSecond, DeleteSource, Pace and Checkpoints are of
	// the move, as in MigrationTarget; like the target they go with the policy on-demand, and they
	// mean nothing where nothing has to move.
	Method                  string `json:"method,omitempty" enum:"auto,overlay,mirror" needs:"retype_target"`
	Verify                  string `json:"verify,omitempty" enum:"full,none" needs:"retype_target"`
	Overwrite               bool   `json:"overwrite,omitempty" needs:"retype_target"`
	BandwidthBytesPerSecond int64  `json:"bandwidth_bytes_per_second,omitempty" needs:"retype_options"`
	DeleteSource            bool   `json:"delete_source,omitempty" needs:"retype_options"`
	Pace                    string `json:"pace,omitempty" enum:"off,gentle,full" needs:"-"`
	Checkpoints             string `json:"checkpoints,omitempty" enum:"drop" needs:"checkpoints"`
}

// CopyOptions returns how the volume is copied if it has to move.
func (in VolumeRetype) CopyOptions() CopyOptions {
	return CopyOptions{BandwidthBytesPerSecond: in.BandwidthBytesPerSecond, Verify: in.Verify, Pace: in.Pace}
}

// The names of the policies.
const (
	PolicyMultiattach         = "multiattach"
	PolicyMultiattachBootable = "multiattach_bootable"
)

// Policy is a rule of the site that an operator turns on or off.
type Policy struct {
	Name        string `json:"name"`
	Enabled     bool   `json:"enabled"`
	Description string `json:"description"`
}

// PolicyUpdate is the body of PUT /v1/policies/{policy}.
type PolicyUpdate struct {
	Enabled bool `json:"enabled"`
}

// CheckStart refuses to start a migration at an attachment whose instance is on no host:
// there is no guest to keep from the source, so the volume is migrated without its
// attachment.
func (a *Attachment) CheckStart() error {
	if a.Host != "" {
		return nil
	}
	return Errorf(CodeStateForbidden, "cannot start a migration at the attachment of volume %s: no host has its instance %s; move the volume with `%s`, with --external-copy if another tool is to copy it",
		a.VolumeName, a.InstanceName, ShellLine("volferryctl", "volume", "migrate", a.VolumeName))
}
