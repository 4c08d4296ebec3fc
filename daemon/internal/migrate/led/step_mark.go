// SPDX-License-Identifier: Apache-2.0

package led

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// LiveMark returns the text that the copy host writes to the beginning of a new dst before any
// host copies. A host that finds the text at dst's path has the same image there. The first round
// overwrites it.
func LiveMark(migrationID string) string {
	return "Volferry: the destination of migration " + migrationID + ", to which nothing was copied yet.\n"
}

// StepMarkDestination writes LiveMark to dst.
func (e *Env) StepMarkDestination() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if err := e.transfer.CheckSizes(ctx, s); err != nil {
			return err
		}
		if err := r.Note(ctx, move.WritesNote{Writes: true}); err != nil {
			return err
		}
		return e.images.Mark(ctx, s.Dst.Path, LiveMark(s.MigrationID))
	}
	return seal.Provided(move.Step("mark_destination", do, nil, nil), e.seal.DstUnchanged)
}

// IdentifyDstStep is the name of stepIdentifyDst.
const IdentifyDstStep = "identify_destination"

// IdentifyDstOutput is the fingerprint of dst when this host began to track its guests.
type IdentifyDstOutput struct {
	Print string `json:"print"`
}

// stepIdentifyDst makes sure that dst's path has the copy host's image, and records its
// fingerprint, so that no round writes to another image.
func (e *Env) stepIdentifyDst() op.Step {
	do := func(ctx context.Context, r *op.Run, in *move.LiveInput) error {
		if in.Generation == 1 { // later generations find copied data
			is, err := e.images.Marked(ctx, in.Dst.Path, LiveMark(in.MigrationID))
			switch {
			case errors.Is(err, image.ErrAbsent):
				return in.Refused(api.CodeNotFound, "this host has nothing at %s, which another host has made", in.Dst.Path)
			case err != nil:
				return err
			case !is:
				return in.Refused(api.CodeChainChanged, "what this host has at %s is not what another host has made there; is it on storage that both of them have?", in.Dst.Path)
			}
		}
		fingerprint, err := e.images.Fingerprint(ctx, in.Dst.Path)
		if err != nil {
			return err
		}
		return r.SetOutput(IdentifyDstOutput{fingerprint})
	}
	return move.LiveStep(IdentifyDstStep, do, nil)
}

func (e *Env) sameLiveDst(ctx context.Context, in *move.LiveInput, h *move.LiveHistory) error {
	now, err := e.images.Fingerprint(ctx, in.Dst.Path)
	if errors.Is(err, image.ErrAbsent) || err == nil && !location.SameImagePrint(h.DstPrint, now) {
		return seal.DstReplaced(in.Dst.Path, h.DstPrint, now)
	}
	return err
}
