// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// claimInstance gives an instance without a host to the calling host, if that host had it last, or
// if an operator asked that host to unshelve it.
func (tx *changeTx) claimInstance(ctx context.Context, i shelving, in api.InstanceTransition, caller string) error {
	may := caller == i.hostID || caller == i.askedHostID || caller == i.fromHostID
	switch {
	case i.State != in.From && i.Host != "" && i.hostID != caller:
		return api.Errorf(api.CodeConflict, "cannot unshelve instance %s here: host %s has it, and it is %s", i.Name, i.Host, i.State).With("state", i.State).With("host", i.Host)
	case i.State != in.From:
		return i.conflict(in)
	case !may && i.askedHostID != "":
		_, asked, err := tx.HostNamed(ctx, i.askedHostID)
		if err != nil {
			return err
		}
		return api.Errorf(api.CodeConflict, "cannot unshelve instance %s here: it was asked for on host %s since", i.Name, asked).With("host", asked)
	case !may:
		return api.Errorf(api.CodeNotYourHost, "cannot unshelve instance %s here: another host had it last, and no operator asked for it on this one", i.Name)
	}
	if err := cmp.Or(checkUnshelvable(i.Instance), tx.CheckNoSplitBrain("unshelve instance "+i.Name, i.ID, "")); err != nil {
		return err
	}
	if err := tx.checkVolumes(ctx, i, caller); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE instances SET host_id = ? WHERE id = ?", caller, i.ID)
	if sqlitedb.Violates(err, "instances.host_id", "instances.name") {
		return api.Errorf(api.CodeConflict, "cannot unshelve instance %s here: the host has another instance of that name", i.Name)
	}
	if err != nil {
		return fmt.Errorf("store host of instance: %w", err)
	}
	if err := tx.Exec(ctx, "UPDATE shelves SET claim_op = ?, from_host_id = ? WHERE instance_id = ?", in.OpID, i.hostID, i.ID); err != nil {
		return err
	}
	return tx.moveInstance(ctx, i, in)
}

// undoClaim returns the instance to its earlier host, unless that host was removed from the
// registry or has another instance of this name.
func (tx *changeTx) undoClaim(ctx context.Context, i shelving) error {
	return tx.ExecAll(ctx,
		ledger.SQL("UPDATE OR IGNORE instances SET host_id = COALESCE((SELECT id FROM hosts WHERE id = ?), host_id) WHERE id = ?", i.fromHostID, i.ID),
		ledger.SQL("UPDATE shelves SET claim_op = '', from_host_id = '' WHERE instance_id = ?", i.ID))
}
