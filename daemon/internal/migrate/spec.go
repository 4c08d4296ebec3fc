// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// The methods of a migration.
const (
	// MethodOverlay freezes src under a local overlay; the guest goes on.
	MethodOverlay = api.MethodOverlay
	// MethodOffline keeps the instance, if there is one, from starting until
	// the end (implementation 1 of the proposal): for volumes that are not
	// attached and for disks that libvirt will not overlay.
	MethodOffline = "offline"
	// MethodMirror has QEMU copy the disk while the guest goes on with src, and
	// write every write of the guest to both: no overlay, and no frozen src that
	// somebody else could copy. For disks that libvirt will not overlay, and for
	// those who want no overlay.
	MethodMirror = api.MethodMirror
	// MethodSave moves a volume with all its guests paused. The registry leads it: a host
	// that copies for it has a part of it only, and changes nothing of its row.
	MethodSave = api.MethodSave
)

// The words for --verify.
const (
	VerifyFull = api.VerifyFull
	VerifyNone = api.VerifyNone
)

// Spec is what was decided about a migration before anything was touched. It
// is the input of all its ops and never changes.
type Spec struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
	VolumeName  string `json:"volume_name"`
	// InstanceID and Target (vda) are empty for a volume that no host has at an
	// instance.
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
	// SrcRights are those of src when no guest has it, which dst gets if the migration makes
	// it; nil for a device, and for a migration that a former version began.
	SrcRights *image.Rights `json:"src_rights,omitempty"`
	Dst       api.Location  `json:"dst"`
	DstBlock  bool          `json:"dst_block"`
	// DstPrint is the fingerprint of a dst that was there already. That of one that the
	// migration makes is in the journal.
	DstPrint string `json:"dst_print,omitempty"`
	// CreateDst: dst did not exist; the migration makes it and, if it is
	// cancelled, removes it.
	CreateDst bool   `json:"create_dst"`
	Overlay   string `json:"overlay,omitempty"`

	Method       string `json:"method"`
	Composite    bool   `json:"composite"` // volume migrate: go through to the end
	ExternalCopy bool   `json:"external_copy"`
	Verify       string `json:"verify"`
	DeleteSource bool   `json:"delete_source"`
	BandwidthBps int64  `json:"bandwidth_bytes_per_second"`
	// ToType is the type that the volume gets when it is at dst, "" to keep its
	// own.
	ToType string `json:"to_type,omitempty"`
}

// input is the Input of every op of a migration.
type input struct {
	Spec Spec `json:"spec"`
	// RequestID is the id of the op that the caller knows: an op that the manager
	// submits by itself, to go on with what was asked for, carries the id of
	// the first one.
	RequestID string `json:"request"`
	// RequestBody is what the caller sent, so that a repeated request is told from
	// another one under the same id.
	RequestBody json.RawMessage `json:"asked"`
	// Why is, in a cancel that nobody asked for, what made the manager give the
	// migration up.
	Why *api.Error `json:"why,omitempty"`
}

// sizeBytes is the exact virtual size that src, overlay and dst share.
func (s *Spec) sizeBytes() int64 { return s.Src.SizeBytes }

func (s *Spec) srcImage() hv.Image { return location.Image(s.Src, s.SrcBlock) }
func (s *Spec) dstImage() hv.Image { return location.Image(s.Dst, s.DstBlock) }
func (s *Spec) overlayImage() hv.Image {
	return hv.Image{Type: hv.SourceFile, Format: string(api.FormatQcow2), Path: s.Overlay}
}

// overlayChain is the chain between start and the end: the overlay over src.
func (s *Spec) overlayChain() []hv.Image { return []hv.Image{s.overlayImage(), s.srcImage()} }

// before is where the disk is until the switch to dst, and beforeChain the chain
// there.
func (s *Spec) before() position {
	if s.Method == MethodOverlay {
		return onOverlay
	}
	return onSrc
}

func (s *Spec) beforeChain() []hv.Image {
	if s.Method == MethodOverlay {
		return s.overlayChain()
	}
	return s.srcChain()
}

// srcChain and dstChain are the chains before start and after complete.
func (s *Spec) srcChain() []hv.Image { return []hv.Image{s.srcImage()} }
func (s *Spec) dstChain() []hv.Image { return []hv.Image{s.dstImage()} }

// attached says whether the volume is a disk of an instance of this host.
func (s *Spec) attached() bool { return s.InstanceID != "" }

// key is what ops that change the disk's chain exclude each other by. Finishing
// is serialised per instance, because libvirt's security drivers mix up two
// block jobs that end at once on one domain.
func (s *Spec) key() string {
	if s.attached() {
		return request.InstanceKey(s.InstanceID)
	}
	return request.VolumeKey(s.VolumeID)
}

// owner is whose guards the migration's are.
func (s *Spec) owner() string { return "migration " + s.MigrationID }

// copyKey is what the copy excludes, and what waits for the copy.
func (s *Spec) copyKey() string { return "copy/" + s.MigrationID }

// specOf reads the spec from an op's input.
func specOf(r *op.Run) (*Spec, error) {
	var in input
	if err := r.Input(&in); err != nil {
		return nil, err
	}
	return &in.Spec, nil
}
