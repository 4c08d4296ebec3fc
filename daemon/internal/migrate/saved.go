// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// CopySaved makes dst and copies src to it, while all guests of the volume are saved. It returns as
// soon as the op has begun. The op has dst as its location (Request); an undone op has removed what
// it made.
func (m *Manager) CopySaved(ctx context.Context, opID string, in api.CopySaved) (api.Migration, error) {
	o, err := m.admission.Submit(ctx, request.Request{
		OpID: opID, Kind: move.KindCopySaved, Body: in,
		Decide: func(ctx context.Context) (request.Input, error) {
			return m.decideLed(ctx, opID, move.KindCopySaved, move.MethodSave, in)
		},
	})
	if err != nil {
		return api.Migration{}, err
	}
	return m.Get(ctx, o.Group)
}

// MakeLive makes dst for a move while all guests write, empty and as large as src. It returns as
// soon as the op has begun. The op has dst as its location, as with CopySaved.
func (m *Manager) MakeLive(ctx context.Context, opID string, in api.LiveMake) error {
	v := in.LiveVolume
	_, err := m.admission.Submit(ctx, request.Request{
		OpID: opID, Kind: move.KindMakeLive, Body: in,
		Decide: func(ctx context.Context) (request.Input, error) {
			if err := checkLiveVolume(&v); err != nil {
				return nil, err
			}
			return m.decideLed(ctx, opID, move.KindMakeLive, move.MethodLive, api.CopySaved{
				MigrationID: v.MigrationID, VolumeID: v.VolumeID, VolumeName: v.VolumeName, Src: v.Src, Dst: v.Dst, CopyOptions: in.CopyOptions, Overwrite: in.Overwrite,
			})
		},
	})
	return err
}

// decideLed decides about the op that makes dst in a move that the registry leads.
func (m *Manager) decideLed(ctx context.Context, opID, kind, method string, in api.CopySaved) (*opInput, error) {
	h, err := m.ledHistory(ctx, in.MigrationID)
	if err != nil {
		return nil, err
	}
	if err := h.mayCopyLed(); err != nil {
		return nil, err
	}
	spec, err := m.preflightLed(ctx, method, in)
	if err != nil {
		return nil, err
	}
	m.log.Info("this host makes the destination of a move that the registry leads", "migration", spec.MigrationID, "method", method,
		"volume", spec.VolumeName, "from", spec.Src.Path, "to", spec.Dst.Path)
	return &opInput{move.Input{Spec: *spec, RequestID: opID}, kind}, nil
}

// ledHistory returns this host's history of a move that the registry leads, empty if it has done
// nothing.
func (m *Manager) ledHistory(ctx context.Context, id string) (*history, error) {
	if _, err := uuid.Parse(id); err != nil {
		return nil, api.Errorf(api.CodeInvalidArgument, "migration_id is %.60q, which is no id", id)
	}
	h, err := m.loadHistory(ctx, id)
	switch {
	case api.CodeOf(err) == api.CodeNotFound:
		return &history{}, nil
	case err == nil && !h.spec.LedByRegistry():
		return nil, api.Errorf(api.CodeConflict, "migration %s of volume %s is not one that the registry leads", id, h.spec.VolumeName)
	}
	return h, err
}

// mayCopyLed refuses a copy during or after another copy, and after a request to drop it.
func (h *history) mayCopyLed() error {
	if o := h.find(move.GoalCancel); o != nil && !o.undone() {
		return api.Errorf(api.CodeStateForbidden, "cannot copy volume %s: its migration %s is being cancelled", h.spec.VolumeName, h.spec.MigrationID)
	}
	if o := h.find(move.GoalCopy); o != nil && !o.undone() {
		return api.Errorf(api.CodeMigrationActive, "cannot copy volume %s once more: op %s does it, or has done it", h.spec.VolumeName, o.Op.ID).
			With("migration_id", h.spec.MigrationID)
	}
	return nil
}

func (m *Manager) preflightLed(ctx context.Context, method string, in api.CopySaved) (*move.Spec, error) {
	target := api.MigrationTarget{ToPool: in.Dst.Pool, ToFormat: in.Dst.Format, CopyOptions: in.CopyOptions, Overwrite: in.Overwrite}
	if target.ToPool == "" {
		target.ToPath = in.Dst.Path
	}
	if err := checkTarget(target); err != nil {
		return nil, err
	}
	host, err := m.host(ctx)
	if err != nil {
		return nil, err
	}
	vol, err := m.ports.Registry.Volume(ctx, in.VolumeID)
	if err != nil {
		return nil, err
	}
	if err := m.checkRecorded(ctx, vol); err != nil {
		return nil, err
	}
	s := &move.Spec{
		MigrationID: in.MigrationID, VolumeID: in.VolumeID, VolumeName: in.VolumeName,
		Host: host.ID, HostName: host.Name, Epoch: host.Epoch, Src: in.Src,
		CopyOptions: in.CopyOptions, Method: method,
	}
	// The volume may be on another host; then that host has reported the place to the registry.
	if err := m.checkPlace(ctx, s.VolumeName, s.Src, location.InstancesOf(vol)...); err != nil {
		return nil, err
	}
	if err := m.checkSource(ctx, s); err != nil {
		return nil, err
	}
	if err := m.resolveDestination(ctx, s, target); err != nil {
		return nil, err
	}
	if err := nameDestination(s, in.Dst.Name); err != nil {
		return nil, err
	}
	if err := m.checkQcow2(ctx, s, nil); err != nil {
		return nil, err
	}
	if err := m.checkUneven(s, nil); err != nil {
		return nil, err
	}
	if err := chooseVerify(s); err != nil {
		return nil, err
	}
	if err := m.checkWritable(s); err != nil {
		return nil, err
	}
	return s, m.checkFilesystems(ctx, s, nil)
}

// nameDestination sets the registry's reserved name of a dst in a pool.
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

// DropSaved removes src or dst of this host's copy for a move that the registry leads. It returns
// as soon as the op has begun. A running copy is stopped first, and a later copy is refused.
func (m *Manager) DropSaved(ctx context.Context, opID string, in api.DropSaved) error {
	kind := map[string]string{api.DropSrc: move.KindDropSrc, api.DropDst: move.KindDropDst}[in.Drop]
	if kind == "" {
		return api.Errorf(api.CodeInvalidArgument, "drop is %.20q; it must be %s or %s", in.Drop, api.DropSrc, api.DropDst)
	}
	if err := m.stopCopySaved(ctx, in); err != nil {
		return err
	}
	_, err := m.admission.Submit(ctx, request.Request{
		OpID: opID, Kind: kind, Body: in,
		Decide: func(ctx context.Context) (request.Input, error) { return m.decideDropSaved(ctx, opID, kind, in) },
	})
	return err
}

func (m *Manager) decideDropSaved(ctx context.Context, opID, kind string, in api.DropSaved) (*opInput, error) {
	h, err := m.ledHistory(ctx, in.MigrationID)
	if err != nil {
		return nil, err
	}
	spec := h.spec
	if len(h.ops) == 0 { // the call that would have made dst was refused, or never came
		row, err := m.ports.Registry.Migration(ctx, in.MigrationID)
		if err != nil {
			return nil, err
		}
		spec.Method = row.Method
	}
	if err := m.mayDrop(ctx, h, kind, in); err != nil {
		return nil, err
	}
	spec.MigrationID, spec.VolumeID = in.MigrationID, in.VolumeID
	spec.DeleteSource = kind == move.KindDropSrc
	return &opInput{move.Input{Spec: spec, RequestID: opID}, kind}, nil
}

// mayDrop refuses to remove an image that may still be needed, or written.
func (m *Manager) mayDrop(ctx context.Context, h *history, kind string, in api.DropSaved) error {
	done := h.copiedBefore(len(h.ops))
	if h.spec.Method == move.MethodLive {
		live, err := m.liveDone(ctx, in.MigrationID)
		if err != nil {
			return err
		}
		if kind == move.KindDropDst && live.tracked && !live.over {
			return api.Errorf(api.CodeStateForbidden, "cannot remove %s: this host still follows what its guests write for migration %s", in.Location.Path, in.MigrationID)
		}
		done = done && live.lastCopied
	}
	if kind == move.KindDropSrc && (!done || h.spec.Verify != move.VerifyFull || in.Location.Path != h.spec.Src.Path) {
		return api.Errorf(api.CodeStateForbidden, "cannot delete %s: this host has not copied and verified it for migration %s", in.Location.Path, in.MigrationID)
	}
	return nil
}

func (m *Manager) stopCopySaved(ctx context.Context, in api.DropSaved) error {
	h, err := m.ledHistory(ctx, in.MigrationID)
	if err != nil || in.Drop != api.DropDst {
		return err
	}
	o := h.running()
	if o == nil || o.goal != move.GoalCopy {
		return nil
	}
	if err := m.continueParked(ctx, o); err != nil {
		return err
	}
	if err := m.runner.Interrupt(o.Op.ID, errCancelled); err != nil && !errors.Is(err, op.ErrFinished) {
		return fmt.Errorf("stop the copy: %w", err)
	}
	return nil // the drop begins after it
}
