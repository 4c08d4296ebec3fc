// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// orphan sets the open migrations of a fenced host to orphaned, except moves that the registry
// itself runs. Orphaned migrations keep their locks and reservations.
func (tx migrationTx) orphan(ctx context.Context, hostID string) error {
	return tx.each(ctx, hostID, " AND m.state <> 'orphaned' AND m.method NOT IN ('"+api.MethodSave+"', '"+api.MethodLive+"')", func(m api.Migration) error {
		if err := tx.Exec(ctx, "UPDATE migrations SET orphaned_from = state, state = 'orphaned' WHERE id = ?", m.ID); err != nil {
			return err
		}
		return tx.AuditMigration(ctx, m, api.Event{What: "migration.orphan", From: string(m.State), To: string(api.MigrationOrphaned)}, nil)
	})
}

// unorphan sets the orphaned migrations of a rejoining host back to their earlier states.
func (tx migrationTx) unorphan(ctx context.Context, hostID string) error {
	return tx.each(ctx, hostID, " AND m.state = 'orphaned'", func(m api.Migration) error {
		before, err := tx.stateBefore(ctx, m.ID)
		if err != nil {
			return err
		}
		if err := tx.Exec(ctx, "UPDATE migrations SET state = orphaned_from, orphaned_from = NULL WHERE id = ?", m.ID); err != nil {
			return err
		}
		return tx.AuditMigration(ctx, m, api.Event{What: "migration.rejoin", From: string(m.State), To: string(before)}, nil)
	})
}

func (tx migrationTx) each(ctx context.Context, hostID, condition string, do func(api.Migration) error) error {
	found, err := ledger.QueryAll(ctx, tx, scanMigration, migrationQuery+" WHERE m.host_id = ? AND "+MigrationOpen+condition+" ORDER BY m.id", hostID)
	if err != nil {
		return err
	}
	for _, m := range found {
		if err := do(m); err != nil {
			return err
		}
	}
	return nil
}

func (tx migrationTx) stateBefore(ctx context.Context, id string) (state api.MigrationState, err error) {
	if err := tx.QueryRowContext(ctx, "SELECT orphaned_from FROM migrations WHERE id = ?", id).Scan(&state); err != nil {
		return "", fmt.Errorf("read state of orphaned migration: %w", err)
	}
	return state, nil
}

// Abandon ends an orphaned migration for an operator: as cancelled if in.Keep is src, as completed
// if it is dst. It refuses to keep a dst that cannot be a whole copy. EvenIfCorrupt allows a dst
// that may mix two points in time.
func (s *Migrations) Abandon(ctx context.Context, call Call, ref string, in api.MigrationAbandon) (api.Migration, error) {
	return mutateAudited(ctx, s.trail, call, "migration.abandon", "migration/"+validate.Clip(ref), []any{ref, in}, admitToken, func(ctx context.Context, tx *Tx) (api.Migration, error) {
		if err := tx.CheckOperator("abandon a migration"); err != nil {
			return api.Migration{}, err
		}
		if in.Keep != api.KeepSrc && in.Keep != api.KeepDst {
			return api.Migration{}, validate.Invalid("keep is %s and must be src or dst", validate.Quote(in.Keep))
		}
		if err := validate.Evidence("reason", in.Reason); err != nil {
			return api.Migration{}, err
		}
		id, err := Resolve(ctx, tx, KindMigration, ref)
		if err != nil {
			return api.Migration{}, err
		}
		m, err := MigrationByID(ctx, tx, id)
		if err != nil {
			return m, err
		}
		return migrationTx{tx}.abandon(ctx, m, in)
	})
}

func (tx migrationTx) abandon(ctx context.Context, m api.Migration, in api.MigrationAbandon) (api.Migration, error) {
	switch {
	case !open(m.State):
		return m, api.Errorf(api.CodeNoMigration, "migration %s of volume %s is over: it is %s", m.ID, m.VolumeName, m.State).With("state", m.State)
	case m.State != api.MigrationOrphaned:
		return m, api.Errorf(api.CodeStateForbidden, "cannot abandon migration %s of volume %s: it is %s and host %s goes on with it; cancel it, or fence the host if it cannot touch the volume any more",
			m.ID, m.VolumeName, m.State, m.Host).With("state", m.State)
	}
	host, err := tx.resolveHost(ctx, m.Host)
	if err != nil {
		return m, err
	}
	if err := checkFenced(host, "abandon migration "+m.ID+" of volume "+m.VolumeName); err != nil {
		return m, err
	}
	before, err := tx.stateBefore(ctx, m.ID)
	if err != nil {
		return m, err
	}
	if in.Keep == api.KeepDst && !dstMayBeWhole(before) {
		return m, api.Errorf(api.CodeCopyNotVerified, "cannot keep the dst of migration %s of volume %s: it was %s when its host was fenced, so dst is no whole copy; keep src",
			m.ID, m.VolumeName, before).With("state", before)
	}
	if in.Keep == api.KeepDst && dstMayBeTorn(m, before) && !in.EvenIfCorrupt {
		return m, api.Errorf(api.CodeCopyNotVerified, "cannot keep the dst of migration %s of volume %s: it was %s when its host was fenced. %s; keep src, "+
			"or say even_if_corrupt (--even-if-corrupt) if you know that the switch was made, or have looked at dst", m.ID, m.VolumeName, before, torn).With("state", before)
	}
	step := api.MigrationTransition{To: api.MigrationCancelled, OpID: tx.Call.Key, Error: missingWrites(m, before, in.Keep)}
	if in.Keep == api.KeepDst {
		step.To = api.MigrationCompleted
	}
	if err := tx.storeState(ctx, m, step); err != nil {
		return m, err
	}
	if err := tx.AuditMigration(ctx, m, api.Event{What: "migration.abandon", From: string(m.State), To: string(step.To)},
		map[string]any{"keep": in.Keep, "reason": in.Reason, "was": before, "even_if_corrupt": in.EvenIfCorrupt}); err != nil {
		return m, err
	}
	return MigrationByID(ctx, tx, m.ID)
}

// dstMayBeWhole reports whether dst may hold the whole volume if the host last reported this
// state. Hosts report a state before they act on it.
func dstMayBeWhole(state api.MigrationState) bool {
	switch state {
	case api.MigrationCopied, api.MigrationCompleting, api.MigrationNeedsOperator:
		return true
	case api.MigrationStarting, api.MigrationStarted, api.MigrationCopying, api.MigrationCancelling,
		api.MigrationCompleted, api.MigrationCancelled, api.MigrationError, api.MigrationOrphaned:
	}
	return false
}

// torn describes, for the operator, a dst into which the guest's writes were being merged in no
// particular order.
const torn = "If the guest was not switched to it, dst has some of what the guest wrote since the start and lacks the rest, in no order: it may be a corrupt filesystem"

// dstMayBeTorn reports whether dst may be neither the volume at one point in time nor the guest's
// present disk. From the start of the op that completes the move until the switch of the guest,
// dst is inconsistent.
func dstMayBeTorn(m api.Migration, before api.MigrationState) bool {
	const offline = "offline"
	switch {
	case m.InstanceID == "" || m.Method == offline:
		return false
	case m.Method == api.MethodMirror:
		return true
	}
	return before != api.MigrationCopied
}

func missingWrites(m api.Migration, before api.MigrationState, keep string) *api.Error {
	why := fmt.Sprintf("migration %s of volume %s was abandoned: host %s was fenced while it was %s. ", m.ID, m.VolumeName, m.Host, before)
	switch {
	case m.InstanceID == "":
		return api.Errorf(api.CodeHypervisorUnavailable, "%sNo host had the volume at an instance, so %s lacks nothing that was written", why, keep)
	case keep == api.KeepDst && dstMayBeTorn(m, before):
		return api.Errorf(api.CodePastPointOfNoReturn, "%sDst is kept. %s", why, torn)
	case keep == api.KeepDst:
		return api.Errorf(api.CodePastPointOfNoReturn, "%sDst is kept: if the guest was not switched to it, it lacks what the guest wrote since the start", why)
	case before == api.MigrationCompleting || before == api.MigrationNeedsOperator:
		return api.Errorf(api.CodePastPointOfNoReturn, "%sSrc is kept: it lacks what the guest wrote since the start, and the guest may have been switched to dst, which has all of it then", why)
	}
	return api.Errorf(api.CodeHypervisorUnavailable, "%sSrc is kept: it lacks what the guest wrote since the start, which only an overlay on that host has", why)
}
