// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/preflight"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// CopySaved begins an op that makes dst and copies src to it while all guests are saved.
// Manager.Request returns dst as the op's location; an undone op has removed dst.
func (p *Parts) CopySaved(ctx context.Context, opID string, in api.CopySaved) error {
	_, err := p.admission.Submit(ctx, request.Request{
		OpID: opID, Kind: move.KindCopySaved, Body: in,
		Decide: func(ctx context.Context) (request.Input, error) {
			return p.decideLed(ctx, opID, move.KindCopySaved, move.MethodSave, in)
		},
	})
	return err
}

// MakeLive is CopySaved for a move while all guests write. It makes an empty dst as large as src.
func (p *Parts) MakeLive(ctx context.Context, opID string, in api.LiveMake) error {
	v := in.LiveVolume
	_, err := p.admission.Submit(ctx, request.Request{
		OpID: opID, Kind: move.KindMakeLive, Body: in,
		Decide: func(ctx context.Context) (request.Input, error) {
			if err := preflight.CheckLiveVolume(&v); err != nil {
				return nil, err
			}
			return p.decideLed(ctx, opID, move.KindMakeLive, move.MethodLive, api.CopySaved{
				MigrationID: v.MigrationID, VolumeID: v.VolumeID, VolumeName: v.VolumeName, Src: v.Src, Dst: v.Dst, CopyOptions: in.CopyOptions, Overwrite: in.Overwrite,
			})
		},
	})
	return err
}

func (p *Parts) decideLed(ctx context.Context, opID, kind, method string, in api.CopySaved) (*history.OpInput, error) {
	h, err := p.ledHistory(ctx, in.MigrationID)
	if err != nil {
		return nil, err
	}
	if err := mayCopyLed(h); err != nil {
		return nil, err
	}
	spec, err := p.preflightLed(ctx, method, in)
	if err != nil {
		return nil, err
	}
	p.log.Info("this host makes the destination of a move that the registry leads", "migration", spec.MigrationID, "method", method,
		"volume", spec.VolumeName, "from", spec.Src.Path, "to", spec.Dst.Path)
	return &history.OpInput{Input: move.Input{Spec: *spec, RequestID: opID}, Planned: op.Op{Kind: kind}}, nil
}

// ledHistory returns this host's history of a move that the registry leads. A move without ops has
// an empty history.
func (p *Parts) ledHistory(ctx context.Context, id string) (*history.Migration, error) {
	if _, err := uuid.Parse(id); err != nil {
		return nil, api.Errorf(api.CodeInvalidArgument, "migration_id is %.60q, which is no id", id)
	}
	h, err := p.history.Load(ctx, id)
	switch {
	case api.CodeOf(err) == api.CodeNotFound:
		return &history.Migration{}, nil
	case err == nil && !h.Spec.LedByRegistry():
		return nil, api.Errorf(api.CodeConflict, "migration %s of volume %s is not one that the registry leads", id, h.Spec.VolumeName)
	}
	return h, err
}

func mayCopyLed(h *history.Migration) error {
	if o := h.Find(move.GoalCancel); o != nil && !o.Undone() {
		return api.Errorf(api.CodeStateForbidden, "cannot copy volume %s: its migration %s is being cancelled", h.Spec.VolumeName, h.Spec.MigrationID)
	}
	if o := h.Find(move.GoalCopy); o != nil && !o.Undone() {
		return api.Errorf(api.CodeMigrationActive, "cannot copy volume %s once more: op %s does it, or has done it", h.Spec.VolumeName, o.Op.ID).
			With("migration_id", h.Spec.MigrationID)
	}
	return nil
}

func (p *Parts) preflightLed(ctx context.Context, method string, in api.CopySaved) (*move.Spec, error) {
	target := api.MigrationTarget{ToPool: in.Dst.Pool, ToFormat: in.Dst.Format, CopyOptions: in.CopyOptions, Overwrite: in.Overwrite}
	if target.ToPool == "" {
		target.ToPath = in.Dst.Path
	}
	if err := preflight.CheckTarget(target); err != nil {
		return nil, err
	}
	host, err := p.host(ctx)
	if err != nil {
		return nil, err
	}
	vol, err := p.registry.Volume(ctx, in.VolumeID)
	if err != nil {
		return nil, err
	}
	if err := p.preflight.CheckRecorded(ctx, vol); err != nil {
		return nil, err
	}
	s := &move.Spec{
		MigrationID: in.MigrationID, VolumeID: in.VolumeID, VolumeName: in.VolumeName,
		Host: host.ID, HostName: host.Name, Epoch: host.Epoch, Generation: vol.Generation, Src: in.Src,
		CopyOptions: in.CopyOptions, Method: method,
	}
	// The volume may be attached on another host, which has then reported the place to the
	// registry.
	if err := p.preflight.CheckPlace(ctx, s.VolumeName, s.Src, location.InstancesOf(vol)...); err != nil {
		return nil, err
	}
	if err := p.preflight.CheckSource(ctx, s); err != nil {
		return nil, err
	}
	if err := p.preflight.ResolveDestination(ctx, s, target); err != nil {
		return nil, err
	}
	if err := nameDestination(s, in.Dst.Name); err != nil {
		return nil, err
	}
	if err := p.preflight.CheckQcow2(ctx, s, nil); err != nil {
		return nil, err
	}
	if err := p.preflight.CheckUneven(s, nil); err != nil {
		return nil, err
	}
	if err := preflight.ChooseVerify(s); err != nil {
		return nil, err
	}
	if err := p.preflight.CheckWritable(s); err != nil {
		return nil, err
	}
	return s, p.preflight.CheckFilesystems(ctx, s, nil)
}

func nameDestination(s *move.Spec, name string) error {
	if name == "" || s.Dst.Pool == "" {
		return nil
	}
	if name != filepath.Base(name) || name == "." || name == ".." {
		return api.Errorf(api.CodeInvalidArgument, "the name of dst is %.60q, which no pool can have", name)
	}
	s.Dst.Name, s.Dst.Path = name, filepath.Join(filepath.Dir(s.Dst.Path), name)
	return nil
}

// DropSaved begins an op that removes src, or this host's copy at dst, of a move that the registry
// leads. To remove dst it first stops a running copy, and a later copy is refused.
func (p *Parts) DropSaved(ctx context.Context, opID string, in api.DropSaved) error {
	kind := map[string]string{api.DropSrc: move.KindDropSrc, api.DropDst: move.KindDropDst}[in.Drop]
	if kind == "" {
		return api.Errorf(api.CodeInvalidArgument, "drop is %.20q; it must be %s or %s", in.Drop, api.DropSrc, api.DropDst)
	}
	if err := p.stopCopySaved(ctx, in); err != nil {
		return err
	}
	_, err := p.admission.Submit(ctx, request.Request{
		OpID: opID, Kind: kind, Body: in,
		Decide: func(ctx context.Context) (request.Input, error) { return p.decideDropSaved(ctx, opID, kind, in) },
	})
	return err
}

func (p *Parts) decideDropSaved(ctx context.Context, opID, kind string, in api.DropSaved) (*history.OpInput, error) {
	h, err := p.ledHistory(ctx, in.MigrationID)
	if err != nil {
		return nil, err
	}
	spec := h.Spec
	if len(h.Ops) == 0 { // the call to make dst was refused, or never came
		row, err := p.registry.Migration(ctx, in.MigrationID)
		if err != nil {
			return nil, err
		}
		spec.Method = row.Method
	}
	if err := p.mayDrop(ctx, h, kind, in); err != nil {
		return nil, err
	}
	spec.MigrationID, spec.VolumeID = in.MigrationID, in.VolumeID
	spec.DeleteSource = kind == move.KindDropSrc
	return &history.OpInput{Input: move.Input{Spec: spec, RequestID: opID}, Planned: op.Op{Kind: kind}}, nil
}

func (p *Parts) mayDrop(ctx context.Context, h *history.Migration, kind string, in api.DropSaved) error {
	done := h.CopiedBefore(len(h.Ops))
	if h.Spec.Method == move.MethodLive {
		live, err := p.history.LiveDone(ctx, in.MigrationID)
		if err != nil {
			return err
		}
		if kind == move.KindDropDst && live.Tracked && !live.Over {
			return api.Errorf(api.CodeStateForbidden, "cannot remove %s: this host still follows what its guests write for migration %s", in.Location.Path, in.MigrationID)
		}
		done = done && live.LastCopied
	}
	if kind == move.KindDropSrc && (!done || h.Spec.Verify != move.VerifyFull || in.Location.Path != h.Spec.Src.Path) {
		return api.Errorf(api.CodeStateForbidden, "cannot delete %s: this host has not copied and verified it for migration %s", in.Location.Path, in.MigrationID)
	}
	return nil
}

func (p *Parts) stopCopySaved(ctx context.Context, in api.DropSaved) error {
	h, err := p.ledHistory(ctx, in.MigrationID)
	if err != nil || in.Drop != api.DropDst {
		return err
	}
	o := h.Running()
	if o == nil || o.Goal != move.GoalCopy {
		return nil
	}
	if err := p.history.ContinueParked(ctx, o); err != nil {
		return err
	}
	if err := p.runner.Interrupt(o.Op.ID, history.ErrCancelled); err != nil && !errors.Is(err, op.ErrFinished) {
		return fmt.Errorf("stop the copy: %w", err)
	}
	return nil // the drop begins after it
}
