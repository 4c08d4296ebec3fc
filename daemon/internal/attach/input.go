// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

const (
	kindAttach = "attachment_attach"
	kindDetach = "attachment_detach"
	kindDelete = "attachment_delete"
	// kindRelease is the kind of a queued release, which waits for the registry.
	kindRelease = "attachment_release"
	// kindRestore ops return a disk to a guest that released the disk after its detach was undone.
	kindRestore    = "attachment_restore"
	kindAttachRoot = "attachment_attach_root"
	kindDetachRoot = "attachment_detach_root"
	kindDeleteRoot = "attachment_delete_root"
)

var kinds = []string{
	kindAttach, kindDetach, kindDelete, kindRelease, kindRestore, kindAttachRoot, kindDetachRoot, kindDeleteRoot,
}

func kindFor(kind string, root bool) string {
	if !root {
		return kind
	}
	return map[string]string{kindAttach: kindAttachRoot, kindDetach: kindDetachRoot, kindDelete: kindDeleteRoot}[kind]
}

const (
	stepNameReserve      = "reserve"
	stepNameClaim        = "claim"
	stepNameGuard        = "guard"
	stepNameConnect      = "connect"
	stepNameAttachConfig = "attach_config"
	stepNameAttachLive   = "attach_live"
	stepNameVerify       = "verify"
	stepNameAbsent       = "absent"
	stepNameBegin        = "begin"
	stepNameRemember     = "remember"
	stepNameDetachConfig = "detach_config"
	stepNameDetachLive   = "detach_live"
	stepNameStayOff      = "stay_off"
	stepNameComplete     = "complete"
	stepNameRelease      = "release"
)

type input struct {
	AttachmentID string `json:"attachment_id"`
	VolumeID     string `json:"volume_id"`
	VolumeName   string `json:"volume_name"`
	InstanceID   string `json:"instance_id"`
	InstanceName string `json:"instance_name"`

	api.DiskAttachment
	Shareable bool         `json:"shareable"`
	Location  api.Location `json:"location"`
	Block     bool         `json:"block"`

	// Root is true for a root volume. Slot is the recorded disk of the root slot or, for a data
	// volume, of its last attachment at the instance, or nil.
	Root bool                `json:"root,omitempty"`
	Slot *api.SlotDefinition `json:"slot,omitempty"`
	// WasRoot is true for a data volume that was the root volume in its last attachment at the
	// instance.
	WasRoot bool `json:"was_root,omitempty"`

	Host       string `json:"host"`
	HostName   string `json:"host_name"`
	Epoch      int64  `json:"epoch"`
	Generation int64  `json:"generation"`

	// From is the registry's state of an attachment to end.
	From  api.AttachmentState `json:"from,omitempty"`
	Force bool                `json:"force,omitempty"`
	// Request is the id of the caller's op that this op follows.
	Request string `json:"request,omitempty"`
	request.Body
}

func (in *input) chain() []hv.Image { return location.Chain(in.Location, in.Block) }

// Keys implements request.Input. Ops of one instance, and of one volume, run one after the other:
// exactly one attachment is the last to end. Ops of a root volume also exclude starts and stops.
func (in *input) Keys() []string {
	keys := []string{request.InstanceKey(in.InstanceID), request.VolumeKey(in.VolumeID)}
	if in.Root {
		keys = append(keys, request.PowerKey(in.InstanceID))
	}
	return keys
}

// Group implements request.Input.
func (in *input) Group() string { return in.AttachmentID }

// Variant implements request.Varied, because ops of root volumes have their own kinds.
func (in *input) Variant(kind string) string { return kindFor(kind, in.Root) }

func (in *input) attachment(state api.AttachmentState) api.Attachment {
	return api.Attachment{
		ID: in.AttachmentID, VolumeID: in.VolumeID, VolumeName: in.VolumeName, InstanceID: in.InstanceID, InstanceName: in.InstanceName,
		Host: in.HostName, DiskAttachment: in.DiskAttachment, State: state, Location: in.Location,
	}
}

func (in *input) cannotDetach() string { return "cannot detach volume " + in.VolumeName }

func step(name string, do, undo op.DoFunc[input], observe op.ObserveFunc[input]) op.Step {
	return op.StepOf(op.InputOf[input], name, do, undo, observe)
}
