// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// epochsOfTimeline bounds the epochs of a host in one timeline. The epochs of a new timeline begin
// above all epochs that hosts may have got since the backup.
const epochsOfTimeline = 1 << 20

// RestoreAcceptance states that an operator has compared the restored database with the hosts.
type RestoreAcceptance struct {
	Evidence string
	// WithoutProof accepts a restore that no host's mark proves. Without it AcceptRestore refuses:
	// it would renew every epoch and repair nothing.
	WithoutProof bool
}

// AcceptRestore starts a new timeline after an operator has compared a database restored from a
// backup with the hosts: marks of older timelines prove nothing any more.
//
// Every host gets a new epoch, because the epochs given out after the backup are unknown. With the
// old epochs, a host that was fenced after the backup would be refused for ever, a host that does
// not know of its fence would be believed, and hosts would use attachments that the database does
// not know. No host is fenced: each releases the volumes that it no longer has, and rejoins. Until
// then CheckNotBehind protects those volumes.
func (s *Marks) AcceptRestore(ctx context.Context, call Call, in RestoreAcceptance) (api.RegistryMark, error) {
	if err := validate.Evidence("evidence", in.Evidence); err != nil {
		return api.RegistryMark{}, err
	}
	if call.Host != nil {
		return api.RegistryMark{}, api.Errorf(api.CodePermissionDenied, "only an operator can accept that the registry was restored")
	}
	return mutateIf(ctx, s.db, call, "registry.accept_restore", in, admitAlways, func(ctx context.Context, tx *Tx) (api.RegistryMark, error) {
		if !in.WithoutProof && !s.db.history.Restored() {
			return api.RegistryMark{}, api.Errorf(api.CodeConflict, "no host has shown that this database is older than what it was told, so there is no restore to accept; "+
				"every host would get a new epoch for nothing. If it is from a backup all the same, say so: --without-proof")
		}
		var id string
		var before int64
		if err := tx.QueryRowContext(ctx, "SELECT id, timeline FROM registry").Scan(&id, &before); err != nil {
			return api.RegistryMark{}, fmt.Errorf("read timeline: %w", err)
		}
		timeline := max(before, s.db.history.NewestTimeline()) + 1
		if err := tx.ExecAll(ctx, ledger.SQL("UPDATE registry SET timeline = ?", timeline), ledger.SQL("DELETE FROM restore_proofs")); err != nil {
			return api.RegistryMark{}, err
		}
		tx.OnCommit(func() { s.db.history.BeginTimeline(timeline) })
		if err := s.renewEpochs(ctx, tx, timeline); err != nil {
			return api.RegistryMark{}, err
		}
		event, err := tx.AddEvent(ctx, api.Event{
			What: "registry.accept_restore", Object: "registry/" + id,
			From: strconv.FormatInt(before, 10), To: strconv.FormatInt(timeline, 10),
			Details: map[string]any{"evidence": in.Evidence, "reason": s.db.history.Reason()},
		})
		if err != nil {
			return api.RegistryMark{}, err
		}
		end, err := tx.End(ctx)
		return s.db.history.Signed(api.RegistryMark{RegistryID: id, Timeline: timeline, Seq: event.Seq, Hash: hex.EncodeToString(end.Hash)}), err
	})
}

func (s *Marks) renewEpochs(ctx context.Context, tx *Tx, timeline int64) error {
	tx.cache.hosts.invalidate()
	if err := tx.Exec(ctx, "UPDATE hosts SET epoch = max(epoch, ?) + 1, behind = 1", timeline*epochsOfTimeline); err != nil {
		return err
	}
	hosts, err := ledger.QueryAll(ctx, tx, scanHostRow, hostQuery)
	if err != nil {
		return err
	}
	tx.OnCommit(func() {
		for _, h := range hosts {
			s.db.hosts.Put(h, "")
		}
	})
	return nil
}

// CheckNotBehind refuses to give a volume to a host while another host that reaches the volume has
// not rejoined since the database was restored from a backup: that host may have got the volume
// after the backup. A host that rejoins releases such volumes; a fenced host cannot touch them.
func (tx *Tx) CheckNotBehind(ctx context.Context, verb, volume string, l api.Location, hostID string) error {
	behind, err := tx.hostsBehind(ctx)
	if err != nil {
		return err
	}
	for _, h := range behind {
		if h.ID == hostID {
			continue
		}
		shared, err := InSharedPool(ctx, tx, h.ID, l)
		if err != nil {
			return err
		}
		if shared {
			return api.Errorf(api.CodeRegistryUnavailable,
				"cannot %s volume %s now: the registry was restored from a backup, and host %s, which reaches %s, has not come back since and may have it; "+
					"start volferryd there, or fence the host if it cannot touch the volume any more", verb, volume, h.Name, Place(l)).With("host", h.Name)
		}
	}
	return nil
}
