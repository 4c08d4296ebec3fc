// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

const (
	// MethodOverlay freezes src under a local overlay, and the guest continues.
	MethodOverlay = api.MethodOverlay
	// MethodOffline prevents starts of the volume's instance until the migration ends. It is for
	// unattached volumes, and for disks that libvirt cannot overlay.
	MethodOffline = "offline"
	// MethodMirror has QEMU copy the disk while the guest runs on src, and write each guest's
	// write to both images. It has no overlay, and no frozen src for other programs. It is for
	// disks that libvirt cannot overlay, and for operators who want no overlay.
	MethodMirror = api.MethodMirror
	// MethodSave moves a volume with all its guests paused. The registry leads the move: a host
	// that copies does only that part, and does not change the registry's row.
	MethodSave = api.MethodSave
	// MethodLive moves a volume while all its guests write. The registry leads this move too. The
	// ops that track writes and copy have their own inputs (LiveInput).
	MethodLive = api.MethodLive
)

// The values of --verify.
const (
	VerifyFull = api.VerifyFull
	VerifyNone = api.VerifyNone
)

// Spec has the decisions of a migration before its first change. It is part of the input of all
// its ops and never changes.
type Spec struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
	VolumeName  string `json:"volume_name"`
	// InstanceID and Target (vda) are empty for a volume that no host has at an instance.
	InstanceID      string `json:"instance_id,omitempty"`
	InstanceName    string `json:"instance_name,omitempty"`
	Target          string `json:"target,omitempty"`
	SrcAttachmentID string `json:"src_attachment_id,omitempty"`
	DstAttachmentID string `json:"dst_attachment_id,omitempty"`

	Host       string `json:"host"`
	HostName   string `json:"host_name"`
	Epoch      int64  `json:"epoch"`
	Generation int64  `json:"generation"`

	Src      api.Location `json:"src"`
	SrcBlock bool         `json:"src_block"`
	// SrcPrint is the fingerprint of src. For a move that the registry leads it is empty if this
	// host neither copies nor drops an image.
	SrcPrint string `json:"src_print,omitempty"`
	// SrcRights are the rights of src while no guest has it, for a dst that the migration makes.
	// They are nil for a device.
	SrcRights *image.Rights `json:"src_rights,omitempty"`
	Dst       api.Location  `json:"dst"`
	DstBlock  bool          `json:"dst_block"`
	// DstDeviceBytes is the size of the block device for a qcow2 dst that the migration makes
	// there, otherwise 0.
	DstDeviceBytes int64 `json:"dst_device_bytes,omitempty"`
	// DstPrint is the fingerprint of an existing dst. DstNote has the fingerprint of a dst that
	// the migration makes.
	DstPrint string `json:"dst_print,omitempty"`
	// CreateDst: dst did not exist. The migration makes it, and a cancel removes it.
	CreateDst bool `json:"create_dst"`
	// ConnectDst means that the migration connects dst, a target's volume. A cancel does not
	// restore overwritten data.
	ConnectDst bool `json:"connect_dst,omitempty"`
	// RoomNote warns that the volume may outgrow dst's storage.
	RoomNote string `json:"room_note,omitempty"`
	// Notes are sentences about properties of src that dst lacks.
	Notes []string `json:"notes,omitempty"`
	// Allocation is empty unless the migration makes dst as a file. With api.AllocationThick dst
	// gets space for the whole volume before it is written, with api.AllocationThin it does not.
	Allocation string `json:"allocation,omitempty"`
	Overlay    string `json:"overlay,omitempty"`
	// GuestBytes is the size that the guest sees, or 0 if that is src's size. For a LUKS container
	// it is the payload's size, by the header at the request. Only a move under an overlay needs
	// it.
	GuestBytes int64 `json:"guest_bytes,omitempty"`

	Method    string `json:"method"`
	Composite bool   `json:"composite"` // volume migrate: continue to the end
	// OnlyMirrored is the reason why the volume can only be mirrored while its instance runs,
	// otherwise "". Only preflight uses it.
	OnlyMirrored string `json:"-"`
	// MirrorFills: QEMU may write zeros to dst where src has holes, and these then use space. Only
	// preflight uses it.
	MirrorFills  bool `json:"-"`
	ExternalCopy bool `json:"external_copy"`
	DeleteSource bool `json:"delete_source"`
	// Checkpoints selects what happens with dirty bitmaps that the move would lose
	// (api.MigrationTarget).
	Checkpoints string `json:"checkpoints,omitempty"`
	// CopyOptions are the options of the start. Env.CopyOptions includes later changes.
	api.CopyOptions
	// ToType is the volume's type after the move, or "" to keep its type.
	ToType string `json:"to_type,omitempty"`
}

// Input is the input of a migration's ops.
type Input struct {
	Spec Spec `json:"spec"`
	// RequestID is the op id that the caller knows. An op that continues a request has the id of
	// the request's first op.
	RequestID string `json:"request"`
	request.Body
	// Why is the reason of a cancel that the manager itself submitted.
	Why *api.Error `json:"why,omitempty"`
}

// SizeBytes returns the exact size of src and dst, including the header of a LUKS container.
func (s *Spec) SizeBytes() int64 { return s.Src.SizeBytes }

// OverlayBytes returns the exact virtual size of the overlay, the size that the guest sees.
func (s *Spec) OverlayBytes() int64 { return cmp.Or(s.GuestBytes, s.SizeBytes()) }

// SrcKind returns the kind of storage of src.
func (s *Spec) SrcKind() medium.Kind { return kindOf(s.SrcImage()) }

// Overlaid reports whether a cancel writes to a file or device below an overlay.
func (s *Spec) Overlaid() bool { return s.Method == MethodOverlay && s.SrcKind().Path }

// DstKind returns the kind of storage of dst.
func (s *Spec) DstKind() medium.Kind { return kindOf(s.DstImage()) }

func kindOf(img hv.Image) medium.Kind { return medium.On(img.Path, img.Type == hv.SourceBlock) }

// SrcImage returns src as an hv.Image.
func (s *Spec) SrcImage() hv.Image { return s.SrcChain()[0] }

// DstImage returns dst as an hv.Image.
func (s *Spec) DstImage() hv.Image { return s.DstChain()[0] }

// Convertible reports whether qemu-img convert can write src over dst and the reverse: both are
// whole images that need no passphrase.
func (s *Spec) Convertible() bool {
	return !slices.ContainsFunc([]hv.Image{s.SrcImage(), s.DstImage()}, func(img hv.Image) bool {
		return img.SliceBytes != 0 || img.LUKSSecret != ""
	})
}

// DstOrigin is where dst comes from.
type DstOrigin int

// The origins of dst.
const (
	// DstExists: dst was there before the move, which overwrites it.
	DstExists DstOrigin = iota
	// DstMade: the migration makes dst, and a cancel removes it.
	DstMade
	// DstConnected: the migration connects dst, a target's volume, and a cancel disconnects it.
	DstConnected
)

// DstOrigin returns where dst comes from.
func (s *Spec) DstOrigin() DstOrigin {
	switch {
	case s.ConnectDst:
		return DstConnected
	case s.CreateDst:
		return DstMade
	}
	return DstExists
}

// CreatesFile reports whether the move makes dst as a file.
func (s *Spec) CreatesFile() bool { return s.CreateDst && s.DstKind().Filesystem }

// MakesDst reports whether the move makes the image at dst, if only on an existing device.
func (s *Spec) MakesDst() bool { return s.CreateDst || s.DstOnDevice() }

// DstOnDevice reports whether dst is a qcow2 image on a block device.
func (s *Spec) DstOnDevice() bool { return s.DstDeviceBytes != 0 }

// DstRoomBytes returns the space that a dst without holes takes.
func (s *Spec) DstRoomBytes() int64 { return max(s.Dst.WholeBytes(), s.DstDeviceBytes) }

// DstFileBytes returns the largest size that dst's file may reach.
func (s *Spec) DstFileBytes() int64 {
	if s.Dst.Format == api.FormatQcow2 {
		return Qcow2FileBytes(s.SizeBytes())
	}
	return s.Dst.WholeBytes()
}

// Qcow2FileBytes returns an upper bound for the file of a full qcow2 image with clusters of 64
// KiB: each cluster takes 16 bytes in one table and 2 in another.
func Qcow2FileBytes(sizeBytes int64) int64 { return sizeBytes + sizeBytes/2048 + 1<<20 }

// OverlayImage returns the overlay as an hv.Image, encrypted if src is.
func (s *Spec) OverlayImage() hv.Image {
	return hv.Image{Type: hv.SourceFile, Format: string(api.FormatQcow2), Path: s.Overlay, LUKSSecret: s.Src.LUKSSecret}
}

// OverlayChain returns the chain after start: the overlay over src.
func (s *Spec) OverlayChain() []hv.Image {
	return append([]hv.Image{s.OverlayImage()}, s.SrcChain()...)
}

// LedByRegistry reports whether the registry leads the migration.
func (s *Spec) LedByRegistry() bool { return s.Method == MethodSave || s.Method == MethodLive }

// Manner describes the guests' state in a move that the registry leads.
func (s *Spec) Manner() string {
	if s.Method == MethodLive {
		return "while its guests write"
	}
	return "with all its guests paused"
}

// Position names the chain of a migration that a disk has.
type Position string

// The positions of a disk. Foreign means that another program has changed the chain: no step
// changes such a disk.
const (
	OnSrc     Position = "src"
	OnOverlay Position = "overlay over src"
	OnDst     Position = "dst"
	Foreign   Position = "another chain"
)

// Place describes the position for operators.
func (s *Spec) Place(p Position) string {
	switch p {
	case OnSrc:
		return fmt.Sprintf("the source (%s)", s.Src.Path)
	case OnOverlay:
		return fmt.Sprintf("the overlay (%s)", s.Overlay)
	case OnDst:
		return fmt.Sprintf("the destination (%s)", s.Dst.Path)
	case Foreign:
	}
	return "other images"
}

// Leftovers names the images that a migration may have left on this host.
func (s *Spec) Leftovers() string {
	if s.Overlay != "" {
		return fmt.Sprintf("%s, %s and the overlay %s with the guest's writes since the start", s.Src.Path, s.Dst.Path, s.Overlay)
	}
	return fmt.Sprintf("%s and %s", s.Src.Path, s.Dst.Path)
}

// Before returns the disk's position before the switch to dst.
func (s *Spec) Before() Position {
	if s.Method == MethodOverlay {
		return OnOverlay
	}
	return OnSrc
}

// BeforeChain returns the disk's chain before the switch to dst.
func (s *Spec) BeforeChain() []hv.Image {
	if s.Method == MethodOverlay {
		return s.OverlayChain()
	}
	return s.SrcChain()
}

func (s *Spec) beforeBytes() int64 {
	if s.Method == MethodOverlay {
		return s.OverlayBytes()
	}
	return s.SizeBytes()
}

// SrcChain returns the chain before start: src and its base images.
func (s *Spec) SrcChain() []hv.Image { return location.Chain(s.Src, s.SrcBlock) }

// DstChain returns the chain after complete: dst and the base images that it keeps.
func (s *Spec) DstChain() []hv.Image { return location.Chain(s.Dst, s.DstBlock) }

// KeepsBase reports whether dst is over the base images of src.
func (s *Spec) KeepsBase() bool { return s.Dst.IsLinkedClone() }

// Background reports whether the block job that folds into dst writes only in the background. If
// so, dst lacks a guest's write until the job has copied it, and the copied data is not flushed
// before the pivot.
func (s *Spec) Background() bool { return s.KeepsBase() }

// ForCommands returns the migration with its ids alone. Package api makes commands of the ids.
func (s *Spec) ForCommands() api.Migration {
	return api.Migration{ID: s.MigrationID, DstAttachmentID: s.DstAttachmentID}
}

// Attached reports whether an instance of this host has the volume.
func (s *Spec) Attached() bool { return s.InstanceID != "" }

// Key returns the key of ops that change the disk's chain. Migrations of one instance share it and
// end one after the other, because libvirt's security drivers confuse two block jobs that end at
// once on one domain.
func (s *Spec) Key() string {
	if s.Attached() {
		return request.InstanceKey(s.InstanceID)
	}
	return request.VolumeKey(s.VolumeID)
}

// Owner returns the owner of the migration's guards.
func (s *Spec) Owner() string { return "migration " + s.MigrationID }

// CopyKey returns the key of the copy and of the ops that must wait for it.
func (s *Spec) CopyKey() string { return "copy/" + s.MigrationID }

// SpecOf returns the spec of an op.
func SpecOf(r *op.Run) (*Spec, error) {
	var in Input
	if err := r.Input(&in); err != nil {
		return nil, err
	}
	return &in.Spec, nil
}

// TopBefore is Top.
func (s *Spec) TopBefore() string { return s.Top() }

// Top returns the path of the image that receives the guest's writes before the switch.
func (s *Spec) Top() string {
	if s.Overlay != "" {
		return s.Overlay
	}
	return s.Src.Path
}
