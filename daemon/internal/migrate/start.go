// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// StartRequest asks for a migration. With Composite (`volume migrate`) it goes on to the
// end or, with an external copy, to the point where that copy is to be made.
type StartRequest struct {
	OpID      string
	VolumeID  string
	Target    api.MigrationTarget
	Composite bool
}

// Start makes all checks, stores the migration and begins it. It returns as soon as the
// registry has granted the lock, or has refused. A repeated request gets the same
// migration.
func (m *Manager) Start(ctx context.Context, req StartRequest) (api.Migration, error) {
	o, err := m.admission.Submit(ctx, request.Request{
		OpID: req.OpID, Variants: steps.KindsFor(steps.GoalStart), Body: req,
		Decide: func(ctx context.Context) (request.Input, error) { return m.decideStart(ctx, req) },
	})
	if err != nil {
		return api.Migration{}, err
	}
	return m.granted(ctx, o.Group, req.OpID)
}

func (m *Manager) decideStart(ctx context.Context, req StartRequest) (*opInput, error) {
	spec, err := m.specFor(ctx, req)
	if err != nil {
		return nil, err
	}
	kind, err := m.kindFor(ctx, spec, steps.GoalStart)
	if err != nil {
		return nil, err
	}
	m.log.Info("migration begins", "migration", spec.MigrationID, "volume", spec.VolumeName, "from", spec.Src.Path, "to", spec.Dst.Path)
	return &opInput{steps.Input{Spec: *spec, RequestID: req.OpID}, kind}, nil
}

// specFor makes all checks of a start and says what it would do. It changes nothing.
func (m *Manager) specFor(ctx context.Context, req StartRequest) (*steps.Spec, error) {
	vol, err := m.ports.Registry.Volume(ctx, req.VolumeID)
	if err != nil {
		return nil, err
	}
	if m.ports.MayMove != nil {
		if err := m.ports.MayMove(ctx, vol.ID); err != nil {
			return nil, err
		}
	}
	if err := m.noOther(ctx, vol); err != nil {
		return nil, err
	}
	spec, err := m.preflight(ctx, vol, req.Target)
	if err != nil {
		return nil, err
	}
	spec.Composite = req.Composite
	return spec, checkByHand(spec, req)
}

// noOther refuses a second migration of a volume before anything is stored. It decides
// nothing: that is the transaction at the registry which takes the lock (stepRegister).
// Journal and registry are both asked, as either may know of a migration that the other
// does not: the registry of one that another host makes or that it leads itself, the
// journal of one that a registry restored from a backup has never heard of, and of one that
// is over at the registry and not here yet.
func (m *Manager) noOther(ctx context.Context, vol api.Volume) error {
	open, err := m.List(ctx, false)
	if err != nil {
		return err
	}
	for i := range open {
		if open[i].VolumeID == vol.ID {
			return api.Errorf(api.CodeMigrationActive, "volume %s has migration %s in progress (%s); see `%s`",
				vol.Name, open[i].ID, open[i].State, api.ShellLine("volferryctl", "migration", "show", open[i].ID)).With("migration_id", open[i].ID)
		}
	}
	if vol.MigrationID != "" {
		return api.Errorf(api.CodeMigrationActive, "volume %s has migration %s in progress; see `%s`",
			vol.Name, vol.MigrationID, api.ShellLine("volferryctl", "migration", "show", vol.MigrationID)).With("migration_id", vol.MigrationID)
	}
	return nil
}

// checkByHand refuses a mirror step by step: between start and complete there is nothing that
// a person could do, and src is not frozen.
func checkByHand(s *steps.Spec, req StartRequest) error {
	switch {
	case s.Method != steps.MethodMirror || req.Composite:
		return nil
	case req.Target.Method == steps.MethodMirror:
		return api.Errorf(api.CodeInvalidArgument, "method mirror makes no frozen source to copy between start and complete; use `volferryctl volume migrate`, which goes through to the end")
	}
	return onlyMirrored(s, "is not done step by step; use `volferryctl volume migrate`, or stop the instance")
}

// grantBound is how long a request waits for the registry's word before it is
// answered with what is known.
const grantBound = 10 * time.Second

// granted waits until the start has got its lock, so that a refusal is the answer to the
// request. The answer is the same however often and late it is asked for: a start that got
// its lock is a migration, even if it failed afterwards.
func (m *Manager) granted(ctx context.Context, id, opID string) (api.Migration, error) {
	ctx, cancel := context.WithTimeout(ctx, grantBound)
	defer cancel()
	for range m.watch.changes(ctx, id) {
		st, err := m.runner.Status(ctx, opID)
		if err != nil {
			return api.Migration{}, request.JournalError(err)
		}
		if steps.Granted(&st) {
			break
		}
		if st.State == op.StateUndone {
			return api.Migration{}, steps.APIError(st.Failure)
		}
	}
	ctx = context.WithoutCancel(ctx)
	if err := m.refuseParked(ctx, opID); err != nil {
		return api.Migration{}, err
	}
	return m.Get(ctx, id)
}

// refuseParked takes back a start that has its turn behind an op that waits for the operator, and
// returns the refusal. Behind another migration it waits (DESIGN.md, section 4).
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
	if st.State != op.StateUndone { // it has got its turn since
		return nil
	}
	return steps.APIError(st.Failure)
}
