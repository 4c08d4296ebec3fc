// SPDX-License-Identifier: Apache-2.0

package led

import (
	"context"
	"errors"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// A step of this host is admitted only in these states of the registry's migration.
var (
	whileCopying = []api.MigrationState{api.MigrationCopying}
	whilePaused  = []api.MigrationState{api.MigrationCompleting}
)

// admitLive makes a step first ask the registry whether the step is still wanted, since the
// request may be late, and the journal whether it is the step's turn.
func (e *Env) admitLive(st op.Step, states []api.MigrationState, turn func(in *move.LiveInput, h *move.LiveHistory) error) op.Step {
	do := st.Do
	st.Do = func(ctx context.Context, r *op.Run) error {
		in, err := op.InputOf[move.LiveInput](r)
		if err != nil {
			return err
		}
		if err := e.liveWanted(ctx, in, states); err != nil {
			return err
		}
		h, err := e.history.Live(ctx, in, r.OpID())
		if err != nil {
			return err
		}
		if err := mayGoOn(in, &h); err != nil {
			return err
		}
		if err := turn(in, &h); err != nil {
			return err
		}
		return do(ctx, r)
	}
	return st
}

func (e *Env) liveWanted(ctx context.Context, in *move.LiveInput, states []api.MigrationState) error {
	row, err := e.registry.Migration(ctx, in.MigrationID)
	if err != nil {
		return e.move.RegistryError(err)
	}
	vol, err := e.registry.Volume(ctx, in.VolumeID)
	if err != nil {
		return e.move.RegistryError(err)
	}
	if row.Method != api.MethodLive || row.VolumeID != in.VolumeID || !slices.Contains(states, row.State) || vol.Location.Path != in.Src.Path {
		return in.Refused(api.CodeStateForbidden, "by the registry migration %s is %s, and the volume is at %s", in.MigrationID, row.State, vol.Location.Path).
			With("state", row.State)
	}
	return nil
}

func mayGoOn(in *move.LiveInput, h *move.LiveHistory) error {
	switch {
	case h.Over:
		return in.Refused(api.CodeStateForbidden, "this host was asked to leave nothing of migration %s behind", in.MigrationID)
	case h.Ended >= in.Generation:
		return in.Refused(api.CodeStateForbidden, "this host was asked to end generation %d", h.Ended)
	}
	return nil
}

// The turn functions check the order of a host's ops. It swaps only after the copy of the previous
// round, and copies a round only after the swap for it. The registry knows what the other hosts
// have done.

func turnToTrack(in *move.LiveInput, h *move.LiveHistory) error {
	if h.Round > 0 || h.Read {
		return in.Refused(api.CodeStateForbidden, "generation %d is past its beginning", in.Generation)
	}
	return nil
}

func turnToSwap(in *move.LiveInput, h *move.LiveHistory) error {
	// A second request for a swap finds it done.
	again := h.Round == in.Round
	switch {
	case h.Tracked == nil, h.Read, !again && h.Round != in.Round-1, !again && !h.Copied, in.Round < 1:
		return in.Refused(api.CodeStateForbidden, "it is not the turn of round %d of generation %d: this host is at round %d", in.Round, in.Generation, h.Round)
	}
	return nil
}

func turnToCopy(in *move.LiveInput, h *move.LiveHistory) error {
	if h.Tracked == nil || h.Read || h.Round != in.Round {
		return in.Refused(api.CodeStateForbidden, "it is not the turn of round %d of generation %d: this host is at round %d", in.Round, in.Generation, h.Round)
	}
	return nil
}

func turnToRead(in *move.LiveInput, h *move.LiveHistory) error {
	if h.Tracked == nil || !h.Copied {
		return in.Refused(api.CodeStateForbidden, "round %d of generation %d was not copied", h.Round, in.Generation)
	}
	return nil
}

func turnToCopyLast(in *move.LiveInput, h *move.LiveHistory) error {
	if !h.ReadDone {
		return in.Refused(api.CodeStateForbidden, "what the guests wrote last was not read in generation %d", in.Generation)
	}
	return nil
}

// onlyGuestsHave refuses src if a domain besides the move's guests, or the kernel, uses src, since
// such writes are not tracked. A domain that ran since the previous check and is off again usually
// still names src in its definition. After a refusal the guests continue on src, which has all
// writes.
func (e *Env) onlyGuestsHave(ctx context.Context, in *move.LiveInput) error {
	stranger := func(what string) error {
		return in.Refused(api.CodeVolumeInUse, "%s %s, which the registry does not know at it: what it writes, or has written since it was started, is in no copy; "+
			"take the disk from there, or have the instance adopted first if it is none of Volferry's yet", in.Src.Path, what)
	}
	doms, err := e.domains.Domains(ctx)
	if err != nil {
		return e.move.HVError(err)
	}
	guests := make([]string, len(in.Guests))
	for i, g := range in.Guests {
		guests[i] = g.ID
	}
	for i := range doms {
		if slices.Contains(guests, doms[i].ID) {
			continue
		}
		open, err := location.Opens(ctx, e.processes, &doms[i], in.Src.Path) // also by the kernel
		if err != nil {
			return e.move.HVError(err)
		}
		if open {
			return stranger("is in use by instance " + doms[i].Name)
		}
	}
	user, err := e.look.UserOf(ctx, in.Src.Path, guests...)
	if err != nil {
		return e.move.HVError(err)
	}
	if user != "" {
		return stranger(user)
	}
	return nil
}

func (e *Env) process(ctx context.Context, in *move.LiveInput, g move.LiveGuest) (string, *hv.Domain, error) {
	dom, err := e.domains.Domain(ctx, g.ID)
	if err != nil {
		return "", nil, e.move.HVError(err)
	}
	if !dom.State.Active() {
		return "", dom, nil
	}
	disk := dom.LiveDisk(g.Target)
	if disk == nil || disk.Top().Path != in.Src.Path {
		return "", nil, in.Refused(api.CodeChainChanged, "disk %s of instance %s is not on %s", g.Target, g.Name, in.Src.Path)
	}
	p, err := e.processes.Process(ctx, g.ID, g.Target)
	if err != nil {
		return "", nil, e.liveHVError(in, err)
	}
	return p.ID, dom, nil
}

// sameProcess returns the domain of a tracked guest, or nil for a guest that is still off. It
// returns the error bitmap_lost for a guest that was started or stopped since its tracking began.
func (e *Env) sameProcess(ctx context.Context, in *move.LiveInput, g move.LiveGuest, tracked []move.TrackedGuest) (*hv.Domain, error) {
	i := slices.IndexFunc(tracked, func(t move.TrackedGuest) bool { return t.ID == g.ID })
	if i < 0 {
		return nil, in.BitmapLost(g, "was not followed from the beginning of generation %d", in.Generation)
	}
	now, dom, err := e.process(ctx, in, g)
	switch {
	case err != nil:
		return nil, err
	case now != tracked[i].Process:
		return nil, in.BitmapLost(g, "was started or stopped since its writes are followed")
	case now == "":
		return nil, nil
	}
	return dom, nil
}

func (e *Env) bitmaps(ctx context.Context, in *move.LiveInput, g move.LiveGuest) (map[string]hv.DirtyBitmap, error) {
	all, err := e.tracker.Tracking(ctx, g.ID, g.Target)
	if err != nil {
		return nil, e.liveHVError(in, err)
	}
	byName := map[string]hv.DirtyBitmap{}
	for _, b := range all {
		byName[b.Name] = b
	}
	return byName, nil
}

// liveHVError is HVError for a guest that may stop at any time. If the guest is off, the op is
// retried, and looks at the guest's process and bitmaps again.
func (e *Env) liveHVError(in *move.LiveInput, err error) error {
	switch {
	case errors.Is(err, hv.ErrNotActive):
		return op.Retry(request.BusyDelay, err)
	case errors.Is(err, hv.ErrNotFound), errors.Is(err, hv.ErrUnsupported):
		return in.Refused(api.CodeStateForbidden, "%v", err)
	}
	return e.move.HVError(err)
}
