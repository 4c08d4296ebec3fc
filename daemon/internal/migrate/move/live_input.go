// SPDX-License-Identifier: Apache-2.0

package move

import (
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// These are the op kinds of this host's part in a move while all guests write. Each op can be
// repeated, and KindLiveUntrack removes the traces of the others.
const (
	KindLiveTrack    = "live_track"
	KindLiveSwap     = "live_swap"
	KindLiveRound    = "live_round"
	KindLiveLastRead = "live_last_read"
	KindLiveLast     = "live_last"
	KindLiveEnd      = "live_end"
	KindLiveUntrack  = "live_untrack"
)

// LiveGuest is a guest of this host that has the volume.
type LiveGuest struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Target string `json:"target"`
}

// LiveInput is the input of each op of a move while all guests write.
type LiveInput struct {
	api.LiveVolume
	api.CopyOptions
	Kind       string      `json:"kind"`
	Guests     []LiveGuest `json:"guests"`
	Generation int         `json:"generation"`
	Round      int         `json:"round"`
	// This host's share of round 0.
	FromBytes  int64 `json:"from_bytes"`
	UntilBytes int64 `json:"until_bytes"`
	// WriteBytesPerSecond is the field of api.LiveRound.
	WriteBytesPerSecond int64 `json:"write_bytes_per_second,omitempty"`

	SrcBlock bool `json:"src_block"`
	DstBlock bool `json:"dst_block"`
	request.Body
}

// Keys implements request.Input. The ops that copy have no key of a guest: the guest may be
// stopped or saved meanwhile.
func (in *LiveInput) Keys() []string {
	keys := []string{request.VolumeKey(in.VolumeID)}
	if in.Kind == KindLiveRound || in.Kind == KindLiveLast {
		return keys
	}
	for _, g := range in.Guests {
		keys = append(keys, request.InstanceKey(g.ID))
	}
	return keys
}

// Group implements request.Input.
func (in *LiveInput) Group() string { return LiveGroup(in.MigrationID) }

// LiveGroup returns the group of a migration's LiveInput ops.
func LiveGroup(migrationID string) string { return "live/" + migrationID }

// Owner returns the owner of the guards that keep guests off.
func (in *LiveInput) Owner() string { return "tracking " + in.MigrationID }

// Prefix returns the beginning of the names of all bitmaps of the move.
func (in *LiveInput) Prefix() string { return "volferry-" + in.MigrationID + "-" }

// GenerationPrefix returns the beginning of the names of all bitmaps of a generation.
func (in *LiveInput) GenerationPrefix() string {
	return fmt.Sprintf("%sg%06d-", in.Prefix(), in.Generation)
}

// Bitmap returns the name of a round's bitmap. No name is the beginning of another.
func (in *LiveInput) Bitmap(round int) string {
	return fmt.Sprintf("%sr%06d", in.GenerationPrefix(), round)
}

// LastBitmap returns the name of the bitmap that must stay empty, since it records only after the
// guests were paused for the last copy.
func (in *LiveInput) LastBitmap() string { return in.GenerationPrefix() + "last" }

// CopyKey returns the cursor's key for a round of the generation.
func (in *LiveInput) CopyKey(round int) string {
	return fmt.Sprintf("%sg%06d-r%06d", in.CopyPrefix(), in.Generation, round)
}

// LastKey returns the key of the last copy of the generation.
func (in *LiveInput) LastKey() string {
	return fmt.Sprintf("%sg%06d-last", in.CopyPrefix(), in.Generation)
}

// CopyGeneration returns the beginning of the keys of all copies of the generation.
func (in *LiveInput) CopyGeneration() string {
	return fmt.Sprintf("%sg%06d-", in.CopyPrefix(), in.Generation)
}

// CopyPrefix returns the beginning of the keys of all copies of the migration.
func (in *LiveInput) CopyPrefix() string { return "live-" + in.MigrationID + "-" }

// SrcImage returns the image of src.
func (in *LiveInput) SrcImage() hv.Image { return location.Image(in.Src, in.SrcBlock) }

// DstImage returns the image of dst.
func (in *LiveInput) DstImage() hv.Image { return location.Image(in.Dst, in.DstBlock) }

// Refused returns the refusal of a move while its guests write.
func (in *LiveInput) Refused(code api.Code, format string, args ...any) *api.Error {
	return api.Errorf(code, "cannot move volume %s while its guests write: %s", in.VolumeName, fmt.Sprintf(format, args...)).
		With("migration_id", in.MigrationID)
}

// BitmapLost returns the error that makes the copy start again with round 0 (a new generation),
// because the record of the guest's writes has a gap.
func (in *LiveInput) BitmapLost(g LiveGuest, format string, args ...any) *api.Error {
	return in.Refused(api.CodeBitmapLost, "instance %s %s; nothing is lost, and the whole volume has to be copied once more", g.Name, fmt.Sprintf(format, args...)).
		With("instance_id", g.ID)
}

// LiveStep makes an op.Step of functions that take the LiveInput. It has no Observe: a repeated
// step looks at the present state itself.
func LiveStep(name string, do, undo op.DoFunc[LiveInput]) op.Step {
	return op.StepOf(op.InputOf[LiveInput], name, do, undo, nil)
}
