// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/migrate/preflight"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// StartRequest is a request for a migration. With Composite (`volume migrate`) it continues to the
// end, or to the point where an external copy is to be made.
type StartRequest struct {
	OpID      string
	VolumeID  string
	Target    api.MigrationTarget
	Composite bool
}

// Start makes all checks, stores the migration and begins it. It returns once the registry has
// granted or refused the lock on the volume. A repeated request returns the same migration.
func (m *Manager) Start(ctx context.Context, req StartRequest) (api.Migration, error) {
	o, err := m.admission.Submit(ctx, request.Request{
		OpID: req.OpID, Kind: move.KindStart, Body: req,
		Decide: func(ctx context.Context) (request.Input, error) { return m.decideStart(ctx, req) },
	})
	if err != nil {
		return api.Migration{}, err
	}
	return m.granted(ctx, o.Group, req.OpID)
}

func (m *Manager) decideStart(ctx context.Context, req StartRequest) (*history.OpInput, error) {
	spec, err := m.specFor(ctx, req)
	if err != nil {
		return nil, err
	}
	way, err := m.env.WayFor(ctx, spec, move.GoalStart)
	if err != nil {
		return nil, err
	}
	m.log.Info("migration begins", "migration", spec.MigrationID, "volume", spec.VolumeName, "from", spec.Src.Path, "to", spec.Dst.Path)
	return &history.OpInput{Input: move.Input{Spec: *spec, RequestID: req.OpID}, Planned: m.env.Plan(move.GoalStart, way)}, nil
}

func (m *Manager) specFor(ctx context.Context, req StartRequest) (*move.Spec, error) {
	vol, err := m.ports.Registry.Volume(ctx, req.VolumeID)
	if err != nil {
		return nil, err
	}
	if m.ports.Unplugs != nil {
		if err := m.ports.Unplugs.MayMove(ctx, vol.ID); err != nil {
			return nil, err
		}
	}
	if err := m.noOther(ctx, vol); err != nil {
		return nil, err
	}
	spec, err := m.Preflight.Spec(ctx, vol, req.Target)
	if err != nil {
		return nil, err
	}
	spec.Composite = req.Composite
	if err := checkByHand(spec, req); err != nil {
		return nil, err
	}
	if !spec.Attached() {
		return spec, nil
	}
	if m.ports.Unplugs != nil && spec.Overlaid() {
		if err := m.ports.Unplugs.MayOverlay(ctx, spec.InstanceID, spec.VolumeName); err != nil {
			return nil, err
		}
	}
	alone := request.OneMoveAtATime{Migrations: m, Processes: m.ports.HV}
	return spec, alone.Check(ctx, request.DiskChange{
		InstanceID: spec.InstanceID, InstanceName: spec.InstanceName,
		Cannot: "cannot migrate volume " + spec.VolumeName, Prevents: "the end of one move would prevent a cancel of the other",
		Overlaid: spec.Overlaid(),
	})
}

// noOther refuses a second migration of a volume early; the registry decides when it grants the
// lock (stepRegister). Only the registry knows migrations of other hosts, and those that it leads.
// Only the journal knows a migration that a restored registry lacks, or that has ended only at the
// registry.
func (m *Manager) noOther(ctx context.Context, vol api.Volume) error {
	open, err := m.List(ctx, false)
	if err != nil {
		return err
	}
	for i := range open {
		if open[i].VolumeID == vol.ID {
			return api.Errorf(api.CodeMigrationActive, "volume %s has migration %s in progress (%s); see `%s`",
				vol.Name, open[i].ID, open[i].State, shell.Line("volferryctl", "migration", "show", open[i].ID)).With("migration_id", open[i].ID)
		}
	}
	if vol.MigrationID != "" {
		return api.Errorf(api.CodeMigrationActive, "volume %s has migration %s in progress; see `%s`",
			vol.Name, vol.MigrationID, shell.Line("volferryctl", "migration", "show", vol.MigrationID)).With("migration_id", vol.MigrationID)
	}
	return nil
}

// checkByHand refuses the separate start of a mirror: an operator could do nothing between start
// and complete, and src is not frozen.
func checkByHand(s *move.Spec, req StartRequest) error {
	switch {
	case s.Method != move.MethodMirror || req.Composite:
		return nil
	case req.Target.Method == move.MethodMirror:
		return api.Errorf(api.CodeInvalidArgument, "method mirror makes no frozen source to copy between start and complete; use `volferryctl volume migrate`, which goes through to the end")
	}
	return preflight.OnlyMirrored(s, "is not done step by step; use `volferryctl volume migrate`, or stop the instance")
}

// grantBound is how long a request waits for the registry's grant before it returns the present
// state.
const grantBound = 10 * time.Second

// granted waits until the start has its lock or a refusal. A start that got its lock is a
// migration, even if it failed later, so a repeated request gets the same answer.
func (m *Manager) granted(ctx context.Context, id, opID string) (api.Migration, error) {
	ctx, cancel := context.WithTimeout(ctx, grantBound)
	defer cancel()
	for range m.watch.Of(ctx, id) {
		st, err := m.runner.Status(ctx, opID)
		if err != nil {
			return api.Migration{}, request.JournalError(err)
		}
		if plans.Granted(&st) {
			break
		}
		if st.State == op.StateUndone {
			return api.Migration{}, move.APIError(st.Failure)
		}
	}
	ctx = context.WithoutCancel(ctx)
	if err := m.refuseParked(ctx, opID); err != nil {
		return api.Migration{}, err
	}
	return m.Get(ctx, id)
}

// refuseParked undoes a start that would wait for an op that needs the operator, and returns the
// refusal. If that op belongs to another migration, the start may wait (DESIGN.md, section 4).
func (m *Manager) refuseParked(ctx context.Context, opID string) error {
	st, err := m.runner.Status(ctx, opID)
	if err != nil {
		return request.JournalError(err)
	}
	if parked := m.admission.Parked(st.Op.Keys); parked == nil || Owns(parked.Op.Kind) || !m.admission.RefuseParked(st) {
		return nil
	}
	if st, err = m.admission.Wait(ctx, opID); err != nil {
		return request.JournalError(err)
	}
	if st.State != op.StateUndone { // it has begun
		return nil
	}
	return move.APIError(st.Failure)
}
