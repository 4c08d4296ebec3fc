// SPDX-License-Identifier: Apache-2.0

package which

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// lastPlace is where the newest ended move of a volume in this host's journal has left the volume.
type lastPlace struct {
	migrationID string
	path        string
	// generation is the volume's generation at path, or 0 if an older program has not stored it:
	// then src is the path before the move.
	generation int64
	src        string
	// led means that the registry leads the move.
	led bool
	// moved says how the journal knows the path.
	moved string
	// again is a command that reports the end of this host's own move to the registry.
	again string
}

// contradicts reports whether the registry has the volume at another location, and knows of no
// later move: only moves count up the generation of a volume.
func (p *lastPlace) contradicts(vol *api.Volume) bool {
	if SameImage(p.path, vol.Location.Path) {
		return false
	}
	if p.generation == 0 {
		return SameImage(p.src, vol.Location.Path)
	}
	return vol.Generation <= p.generation
}

// lastPlace returns where the newest move left a volume, or nil if that move is open, or there is
// none. ops show where volumes are, oldest first (history.Reader.PlaceOps). A move that the
// registry leads counts if this host has copied the whole volume to dst and has not dropped dst, or
// if it was asked to wake an instance of the volume.
func (f *Finder) lastPlace(ctx context.Context, ops []op.Op, volumeID string) (*lastPlace, error) {
	for _, o := range slices.Backward(ops) {
		if wake, is, err := history.WakeOf(o); err != nil {
			return nil, err
		} else if is {
			if wake.VolumeID == volumeID && wake.Generation > 0 {
				return wokenPlace(&wake), nil
			}
			continue
		}
		s, err := history.SpecOf(o)
		if err != nil {
			return nil, err
		}
		if s.VolumeID != volumeID {
			continue
		}
		h, err := f.history.Load(ctx, o.Group)
		if err != nil {
			return nil, err
		}
		if !h.Spec.LedByRegistry() {
			return placeOf(h), nil
		}
		if copied, err := f.copiedLed(ctx, h); err != nil {
			return nil, err
		} else if copied {
			return copiedPlace(&h.Spec), nil
		}
	}
	return nil, nil
}

func wokenPlace(in *memory.PauseInput) *lastPlace {
	return &lastPlace{migrationID: in.MigrationID, path: in.Location.Path, generation: in.Generation, led: true, moved: "has a guest of it at"}
}

func placeOf(h *history.Migration) *lastPlace {
	if state, _ := h.State(); !state.Final() {
		return nil
	}
	return &lastPlace{
		migrationID: h.Spec.MigrationID, path: h.Chain()[0].Path, src: h.Spec.Src.Path, generation: generationAfter(h),
		moved: "has it at", again: h.Again(move.GoalComplete),
	}
}

func copiedPlace(s *move.Spec) *lastPlace {
	p := &lastPlace{migrationID: s.MigrationID, path: s.Dst.Path, src: s.Src.Path, led: true, moved: "has it copied to"}
	if s.Generation > 0 {
		p.generation = s.Generation + 1
	}
	return p
}

func (f *Finder) copiedLed(ctx context.Context, h *history.Migration) (bool, error) {
	if drop := h.Find(move.GoalCancel); !h.CopiedBefore(len(h.Ops)) || drop != nil && !drop.Undone() {
		return false, nil
	}
	if h.Spec.Method != move.MethodLive {
		return true, nil
	}
	live, err := f.history.LiveDone(ctx, h.Spec.MigrationID)
	return live.LastCopied, err
}
