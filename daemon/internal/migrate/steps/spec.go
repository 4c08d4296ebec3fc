// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// The methods of a migration.
const (
	// MethodOverlay freezes src under a local overlay, and the guest runs on.
	MethodOverlay = api.MethodOverlay
	// MethodOffline keeps the instance, if there is one, from starting until the end. It is
	// for volumes that are not attached and for disks that libvirt will not overlay.
	MethodOffline = "offline"
	// MethodMirror has QEMU copy the disk while the guest runs on src, and write every
	// write of the guest to both: there is no overlay, and no frozen src that somebody else
	// could copy. It is for disks that libvirt will not overlay, and for users who want no
	// overlay.
	MethodMirror = api.MethodMirror
	// MethodSave moves a volume with all its guests paused. The registry leads it: a host
	// that copies for it only does that part, and does not change the registry's row of the
	// migration.
	MethodSave = api.MethodSave
	// MethodLive moves a volume while all its guests write. The registry leads it as well: the
	// ops of the copying and of the guests' writes have inputs of their own (LiveInput).
	MethodLive = api.MethodLive
)

// The values of --verify.
const (
	VerifyFull = api.VerifyFull
	VerifyNone = api.VerifyNone
)

// Spec has the decisions about a migration that were made before anything was touched. It
// is the input of all its ops and never changes.
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
	// SrcPrint is the fingerprint of src, empty for a migration that a former version
	// began.
	SrcPrint string `json:"src_print,omitempty"`
	// SrcRights are the rights of src while no guest has it. Dst gets them if the migration
	// makes dst. They are nil for a device, and for a migration that an older version
	// began.
	SrcRights *image.Rights `json:"src_rights,omitempty"`
	Dst       api.Location  `json:"dst"`
	DstBlock  bool          `json:"dst_block"`
	// DstDeviceBytes, if not 0, says that dst is a qcow2 image that the migration makes on a block
	// device, and how large that has to be. In a pool it is made so large.
	DstDeviceBytes int64 `json:"dst_device_bytes,omitempty"`
	// DstPrint is the fingerprint of a dst that was there already. If the migration makes
	// dst, its fingerprint is in the journal (DstNote).
	DstPrint string `json:"dst_print,omitempty"`
	// CreateDst: dst did not exist; the migration makes it and, if it is
	// cancelled, removes it.
	CreateDst bool `json:"create_dst"`
	// ConnectDst: dst is a volume of a target, and making it is connecting it. What is written to
	// it before stays there if the migration is cancelled.
	ConnectDst bool `json:"connect_dst,omitempty"`
	// RoomNote says that the volume may outgrow the place of dst, "" if it may not.
	RoomNote string `json:"room_note,omitempty"`
	// Notes say, each in a sentence, what of src dst does not have.
	Notes []string `json:"notes,omitempty"`
	// Allocation is api.AllocationThick if dst, a file that the migration makes, gets room for all
	// of the volume before it is written to, api.AllocationThin if not; empty where it is no such
	// file.
	Allocation string `json:"allocation,omitempty"`
	Overlay    string `json:"overlay,omitempty"`
	// GuestBytes is the size of what the guest sees of src, if that is not all of it: the payload
	// of a LUKS container, by its header when the move was asked for. Only a move under an
	// overlay has to know.
	GuestBytes int64 `json:"guest_bytes,omitempty"`

	Method    string `json:"method"`
	Composite bool   `json:"composite"` // volume migrate: go through to the end
	// OnlyMirrored says why the volume can only be mirrored while its instance runs, "" if it can
	// move otherwise, or if it is not mirrored. Only the checks of the request have to know.
	OnlyMirrored string `json:"-"`
	// MirrorFills says that QEMU may write what is a hole in src to dst, where it then takes room.
	// Only the checks of the request have to know.
	MirrorFills  bool `json:"-"`
	ExternalCopy bool `json:"external_copy"`
	DeleteSource bool `json:"delete_source"`
	// Checkpoints says what becomes of dirty bitmaps that the move would lose
	// (api.MigrationTarget).
	Checkpoints string `json:"checkpoints,omitempty"`
	// CopyOptions are those that the migration was started with; Env.CopyOptions has what
	// was changed since.
	api.CopyOptions
	// ToType is the type that the volume gets once it is at dst, "" to keep its own.
	ToType string `json:"to_type,omitempty"`
}

// Input is the Input of every op of a migration.
type Input struct {
	Spec Spec `json:"spec"`
	// RequestID is the id of the op that the caller knows: an op that the manager submits
	// by itself to continue a request has the id of the request's first op.
	RequestID string `json:"request"`
	request.Body
	// Why is the reason for which the manager gave the migration up, in a cancel that
	// nobody asked for.
	Why *api.Error `json:"why,omitempty"`
}

// SizeBytes is the exact size that src and dst share: of LUKS containers with their headers.
func (s *Spec) SizeBytes() int64 { return s.Src.SizeBytes }

// OverlayBytes is the exact virtual size of the overlay: what the guest sees.
func (s *Spec) OverlayBytes() int64 { return cmp.Or(s.GuestBytes, s.SizeBytes()) }

// SrcImage returns src as the hypervisor names it.
func (s *Spec) SrcImage() hv.Image { return location.Image(s.Src, s.SrcBlock) }

// DstImage returns dst as the hypervisor names it.
func (s *Spec) DstImage() hv.Image { return location.Image(s.Dst, s.DstBlock) }

// DstOnDevice reports whether dst is a qcow2 image on a block device.
func (s *Spec) DstOnDevice() bool { return s.DstDeviceBytes != 0 }

// DstRoomBytes is how much room dst takes where it is made, if it is not sparse.
func (s *Spec) DstRoomBytes() int64 { return max(s.Dst.WholeBytes(), s.DstDeviceBytes) }

// DstFileBytes is how large the file of dst may become.
func (s *Spec) DstFileBytes() int64 {
	if s.Dst.Format == api.FormatQcow2 {
		return Qcow2FileBytes(s.SizeBytes())
	}
	return s.Dst.WholeBytes()
}

// Qcow2FileBytes is at least how large the file of a qcow2 image of clusters of 64 KiB gets: each
// takes 16 bytes in a table and 2 in another.
func Qcow2FileBytes(sizeBytes int64) int64 { return sizeBytes + sizeBytes/2048 + 1<<20 }

// OverlayImage returns the overlay as the hypervisor names it. It is encrypted as src is.
func (s *Spec) OverlayImage() hv.Image {
	return hv.Image{Type: hv.SourceFile, Format: string(api.FormatQcow2), Path: s.Overlay, LUKSSecret: s.Src.LUKSSecret}
}

// OverlayChain returns the chain between start and the end: the overlay over src.
func (s *Spec) OverlayChain() []hv.Image {
	return append([]hv.Image{s.OverlayImage()}, s.SrcChain()...)
}

// LedByRegistry reports whether the registry makes the migration, and this host only has a part
// in it.
func (s *Spec) LedByRegistry() bool { return s.Method == MethodSave || s.Method == MethodLive }

// manner is how the guests are while the registry moves their volume.
func (s *Spec) manner() string {
	if s.Method == MethodLive {
		return "while its guests write"
	}
	return "with all its guests paused"
}

// Position says which of a migration's chains a disk is on.
type Position string

// The positions. Foreign is any other chain: somebody else has changed the disk, and
// nothing is done to it.
const (
	OnSrc     Position = "src"
	OnOverlay Position = "overlay over src"
	OnDst     Position = "dst"
	Foreign   Position = "another chain"
)

// place is a position in words for people.
func (s *Spec) place(p Position) string {
	switch p {
	case OnSrc:
		return fmt.Sprintf("the source (%s)", s.Src.Path)
	case OnOverlay:
		return fmt.Sprintf("the overlay (%s)", s.Overlay)
	case OnDst:
		return fmt.Sprintf("the destination (%s)", s.Dst.Path)
	case Foreign:
	}
	return "images that this move does not know"
}

// Leftovers names what a migration may have left on this host.
func (s *Spec) Leftovers() string {
	if s.Overlay != "" {
		return fmt.Sprintf("%s, %s and the overlay %s with the guest's writes since the start", s.Src.Path, s.Dst.Path, s.Overlay)
	}
	return fmt.Sprintf("%s and %s", s.Src.Path, s.Dst.Path)
}

// Before returns the position of the disk until the switch to dst; beforeChain is its chain
// then.
func (s *Spec) Before() Position {
	if s.Method == MethodOverlay {
		return OnOverlay
	}
	return OnSrc
}

func (s *Spec) beforeChain() []hv.Image {
	if s.Method == MethodOverlay {
		return s.OverlayChain()
	}
	return s.SrcChain()
}

// beforeBytes is the size of the top of beforeChain.
func (s *Spec) beforeBytes() int64 {
	if s.Method == MethodOverlay {
		return s.OverlayBytes()
	}
	return s.SizeBytes()
}

// SrcChain returns the chain before start: src, with its base images if it is a linked
// clone.
func (s *Spec) SrcChain() []hv.Image { return location.Chain(s.Src, s.SrcBlock) }

// DstChain returns the chain after complete: dst, with the base images that it keeps.
func (s *Spec) DstChain() []hv.Image { return location.Chain(s.Dst, s.DstBlock) }

// KeepsBase reports whether dst is over the base images of src.
func (s *Spec) KeepsBase() bool { return s.Dst.IsLinkedClone() }

// Background reports whether the job of the fold into dst writes in the background alone
// (blockCopyOptions). Then dst lacks what a guest writes, until the job has copied it, and a flush
// does not reach what the job has copied before the pivot.
func (s *Spec) Background() bool { return s.KeepsBase() }

// Attached reports whether the volume is a disk of an instance of this host.
func (s *Spec) Attached() bool { return s.InstanceID != "" }

// Key returns the key of ops that change the disk's chain. The ends of migrations exclude
// each other per instance, because libvirt's security drivers mix up two block jobs that
// end at once on one domain.
func (s *Spec) Key() string {
	if s.Attached() {
		return request.InstanceKey(s.InstanceID)
	}
	return request.VolumeKey(s.VolumeID)
}

// Owner returns the owner of the guards that the migration sets.
func (s *Spec) Owner() string { return "migration " + s.MigrationID }

// CopyKey returns the key of the copy and of the ops that have to wait for it.
func (s *Spec) CopyKey() string { return "copy/" + s.MigrationID }

// specOf reads the spec from an op's input.
func specOf(r *op.Run) (*Spec, error) {
	var in Input
	if err := r.Input(&in); err != nil {
		return nil, err
	}
	return &in.Spec, nil
}

// TopBefore returns the path of the image that takes the guest's writes before the switch.
func (s *Spec) TopBefore() string { return s.top() }

// top is the image that takes the guest's writes before the switch.
func (s *Spec) top() string {
	if s.Overlay != "" {
		return s.Overlay
	}
	return s.Src.Path
}
