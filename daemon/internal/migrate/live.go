// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Live begins this host's next part of a move while all guests write. in is the body of one of the
// calls of package api with names that begin with Live. It returns as soon as the op has begun. A
// call that ends something first stops the running copy.
func (m *Manager) Live(ctx context.Context, opID string, in any) error {
	live, err := liveInput(in)
	if err != nil {
		return err
	}
	if live.Kind == move.KindLiveEnd || live.Kind == move.KindLiveUntrack {
		if err := m.stopLiveCopies(ctx, live.MigrationID); err != nil {
			return err
		}
	}
	_, err = m.admission.Submit(ctx, request.Request{
		OpID: opID, Kind: live.Kind, Body: in,
		Decide: func(ctx context.Context) (request.Input, error) { return live, m.decideLive(ctx, live) },
	})
	return err
}

func liveInput(in any) (*move.LiveInput, error) {
	var live move.LiveInput
	switch in := in.(type) {
	case api.LiveTrack:
		live = move.LiveInput{Kind: move.KindLiveTrack, LiveVolume: in.LiveVolume, Generation: in.Generation}
	case api.LiveSwap:
		live = move.LiveInput{Kind: move.KindLiveSwap, LiveVolume: in.LiveVolume, Generation: in.Generation, Round: in.Round}
	case api.LiveRound:
		live = move.LiveInput{
			Kind: move.KindLiveRound, LiveVolume: in.LiveVolume, CopyOptions: in.CopyOptions,
			Generation: in.Generation, Round: in.Round, FromBytes: in.FromBytes, UntilBytes: in.UntilBytes,
			WriteBytesPerSecond: in.WriteBytesPerSecond,
		}
	case api.LiveEndRound:
		live = move.LiveInput{Kind: move.KindLiveEnd, LiveVolume: in.LiveVolume, Generation: in.Generation}
	case api.LiveLastRead:
		live = move.LiveInput{Kind: move.KindLiveLastRead, LiveVolume: in.LiveVolume, Generation: in.Generation}
	case api.LiveLastCopy:
		live = move.LiveInput{Kind: move.KindLiveLast, LiveVolume: in.LiveVolume, CopyOptions: in.CopyOptions, Generation: in.Generation}
	case api.LiveUntrack:
		live = move.LiveInput{Kind: move.KindLiveUntrack, LiveVolume: in.LiveVolume, Generation: 1}
	default:
		return nil, fmt.Errorf("%T is no call of a move while all guests write", in)
	}
	return &live, checkLive(&live)
}

// checkLive refuses a body that is invalid by itself.
func checkLive(in *move.LiveInput) error {
	if err := checkLiveVolume(&in.LiveVolume); err != nil {
		return err
	}
	size := in.Src.SizeBytes
	inside := func(off int64) bool {
		return off >= 0 && off <= size && (off%in.UnitBytes == 0 || off == size)
	}
	switch {
	case in.Dst.Path == "":
		return api.Errorf(api.CodeInvalidArgument, "dst has to be a place")
	case in.Generation < 1 || in.Round < 0 || in.Kind == move.KindLiveSwap && in.Round < 1:
		return api.Errorf(api.CodeInvalidArgument, "generation is %d and round is %d", in.Generation, in.Round)
	case in.WriteBytesPerSecond < 0:
		return api.Errorf(api.CodeInvalidArgument, "write_bytes_per_second is %d", in.WriteBytesPerSecond)
	case !inside(in.FromBytes) || !inside(in.UntilBytes) || in.FromBytes > in.UntilBytes, in.Round > 0 && in.UntilBytes > 0:
		return api.Errorf(api.CodeInvalidArgument, "the share from %d to %d is not of whole units of a volume of %d bytes", in.FromBytes, in.UntilBytes, size)
	}
	return in.CopyOptions.Check()
}

// checkLiveVolume is checkLive for the common part of all calls. dst has no path before it is made.
func checkLiveVolume(in *api.LiveVolume) error {
	size := in.Src.SizeBytes
	if _, err := uuid.Parse(in.MigrationID); err != nil {
		return api.Errorf(api.CodeInvalidArgument, "migration_id is %.60q, which is no id", in.MigrationID)
	}
	switch {
	case in.Src.Format != api.FormatRaw || in.Dst.Format != api.FormatRaw:
		return api.Errorf(api.CodeUnsupportedDisk, "cannot move volume %s while its guests write: src and dst have to be raw", in.VolumeName)
	case in.Src.Path == "" || size <= 0 || size != in.Dst.SizeBytes:
		return api.Errorf(api.CodeInvalidArgument, "src and dst have to be places of one size")
	case in.UnitBytes != api.LiveUnitBytes(size):
		return api.Errorf(api.CodeInvalidArgument, "unit_bytes is %d; it must be %d for a volume of %d bytes", in.UnitBytes, api.LiveUnitBytes(size), size)
	}
	return nil
}

// decideLive adds what the registry's calls lack: the disks of the guests, and the kinds of src and
// dst.
func (m *Manager) decideLive(ctx context.Context, in *move.LiveInput) (err error) {
	if in.Guests, err = m.liveGuests(ctx, in); err != nil {
		return err
	}
	if in.Kind == move.KindLiveEnd || in.Kind == move.KindLiveUntrack {
		return nil
	}
	if err := m.checkPlace(ctx, in.VolumeName, in.Src, in.Instances...); err != nil {
		return err
	}
	if err := m.checkPlace(ctx, in.VolumeName, in.Dst); err != nil {
		return err
	}
	if in.Kind != move.KindLiveRound && in.Kind != move.KindLiveLast {
		return nil
	}
	src, err := m.ports.Images.Inspect(ctx, in.Src)
	if err != nil {
		return err
	}
	dst, err := m.ports.Images.Inspect(ctx, in.Dst)
	if err != nil {
		return err
	}
	in.SrcBlock, in.DstBlock = src.Block, dst.Block
	return nil
}

// liveGuests returns the guests at the move's beginning on this host, from the journal: during a
// move no instance gets or loses the volume. For the first call they are looked up.
func (m *Manager) liveGuests(ctx context.Context, in *move.LiveInput) ([]move.LiveGuest, error) {
	ops, err := m.journal.Group(ctx, in.Group())
	if err != nil {
		return nil, request.JournalError(err)
	}
	if len(ops) > 0 {
		var first move.LiveInput
		if err := json.Unmarshal(ops[0].Input, &first); err != nil {
			return nil, fmt.Errorf("decode the input of op %s: %w", ops[0].ID, err)
		}
		if !slices.Equal(first.Instances, in.Instances) {
			return nil, api.Errorf(api.CodeConflict, "the instances of migration %s on this host were %q, and are %q now", in.MigrationID, first.Instances, in.Instances)
		}
		return first.Guests, nil
	}
	if in.Kind != move.KindLiveTrack {
		return nil, nil // nothing was begun on this host
	}
	vol, err := m.ports.Registry.Volume(ctx, in.VolumeID)
	if err != nil {
		return nil, err
	}
	if err := m.checkRecorded(ctx, vol); err != nil {
		return nil, err
	}
	var guests []move.LiveGuest
	for _, id := range in.Instances {
		att, err := attachmentOf(&vol, id)
		if err != nil {
			return nil, err
		}
		dom, err := m.ports.HV.Domain(ctx, id)
		if err != nil {
			return nil, look.HVRefusal(err)
		}
		guests = append(guests, move.LiveGuest{ID: id, Name: dom.Name, Target: att.Device})
	}
	return guests, nil
}

func attachmentOf(vol *api.Volume, instanceID string) (api.Attachment, error) {
	i := slices.IndexFunc(vol.Attachments, func(a api.Attachment) bool { return a.InstanceID == instanceID })
	if i < 0 {
		return api.Attachment{}, api.Errorf(api.CodeConflict, "by the registry volume %s is not attached to instance %s", vol.Name, instanceID)
	}
	return vol.Attachments[i], nil
}

// stopLiveCopies ends the copies of a move. Requests that wait for them begin afterwards.
func (m *Manager) stopLiveCopies(ctx context.Context, migrationID string) error {
	for _, st := range m.runner.Active() {
		if st.Op.Group != move.LiveGroup(migrationID) || st.Op.Kind != move.KindLiveRound && st.Op.Kind != move.KindLiveLast {
			continue
		}
		if st.State == op.StateNeedsOperator {
			if err := m.runner.Continue(ctx, st.Op.ID); err != nil && !errors.Is(err, op.ErrNotParked) && !errors.Is(err, op.ErrFinished) {
				return fmt.Errorf("let the copy of op %s end: %w", st.Op.ID, err)
			}
		}
		err := m.runner.Interrupt(st.Op.ID, errCancelled)
		if err != nil && !errors.Is(err, op.ErrFinished) && !errors.Is(err, op.ErrCommitted) {
			return fmt.Errorf("stop the copy of op %s: %w", st.Op.ID, err)
		}
	}
	return nil
}

// LiveOutcome returns the result of an op of a move while all guests write, nil for other ops and
// before the op's end.
func LiveOutcome(st *op.Status) *api.LiveOutcome {
	if st.State != op.StateDone {
		return nil
	}
	return plans.LiveOutcome(st)
}
