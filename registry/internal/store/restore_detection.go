// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/history"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
)

func readHistory(ctx context.Context, q ledger.Querier, end ledger.End) (*history.History, error) {
	var (
		now api.RegistryMark
		key []byte
	)
	if err := q.QueryRowContext(ctx, "SELECT id, timeline, mark_key FROM registry").Scan(&now.RegistryID, &now.Timeline, &key); err != nil {
		return nil, fmt.Errorf("read identity of the registry: %w", err)
	}
	proofs, err := ledger.QueryAll(ctx, q, func(row ledger.Scanner) (p history.Shown, err error) {
		p.Mark.RegistryID = now.RegistryID
		err = row.Scan(&p.HostID, &p.HostName, &p.Mark.Timeline, &p.Mark.Seq, &p.Mark.Hash)
		return p, err
	}, "SELECT host_id, host, timeline, seq, hash FROM restore_proofs")
	if err != nil {
		return nil, err
	}
	h := history.New(now, key, proofs)
	h.Advance(end.Seq, end.Hash)
	return h, nil
}

func makeMarkKey(ctx context.Context, db *sqlitedb.DB) error {
	if _, err := db.Write.ExecContext(ctx, "UPDATE registry SET mark_key = ? WHERE length(mark_key) = 0", history.NewKey()); err != nil {
		return fmt.Errorf("make the key of marks: %w", err)
	}
	return nil
}

// Marks are positions in the registry's history, which hosts keep and show again.
type Marks struct {
	db         *DB
	onReadOnly func(reason string)
	onDoubt    func(host string)
}

// Now returns, from memory, the mark of the newest change on stable storage.
func (s *Marks) Now() api.RegistryMark { return s.db.history.Now() }

// Observe compares a mark that a host shows with the registry's history. A mark that is not in
// this history but has this registry's signature proves that the database was restored from a
// backup, or that the end of its audit trail was cut off; the store becomes read-only. An unsigned
// mark is one host's claim: the store refuses that host until it shows another mark or a restore
// is accepted. Marks of other registries and older timelines prove nothing.
func (s *Marks) Observe(ctx context.Context, hostID, name string, m api.RegistryMark) error {
	now := s.db.history.Now()
	if m.RegistryID != now.RegistryID || m.Timeline < now.Timeline || m.Seq <= 0 {
		s.db.history.ClearDoubt(hostID)
		return nil
	}
	ours, err := s.inHistory(ctx, now, m)
	if err != nil {
		return err
	}
	if ours {
		s.db.history.ClearDoubt(hostID)
		return nil
	}
	if !s.db.history.HasSigned(m) {
		if s.db.history.AddDoubt(history.Shown{HostID: hostID, HostName: name, Mark: m}) && s.onDoubt != nil {
			s.onDoubt(name)
		}
		return s.db.history.CheckDoubt(hostID)
	}
	newest, first := s.db.history.AddProof(history.Shown{HostID: hostID, HostName: name, Mark: m})
	if first && s.onReadOnly != nil {
		s.onReadOnly(s.db.history.Reason())
	}
	if newest {
		return s.keepProof(ctx, hostID, name, m)
	}
	return nil
}

func (s *Marks) keepProof(ctx context.Context, hostID, name string, m api.RegistryMark) error {
	return s.db.ledger.Submit(ctx, func(ctx context.Context, tx *ledger.Tx) error {
		if s.db.history.Now().Timeline > m.Timeline {
			return nil // a restore has been accepted meanwhile
		}
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO restore_proofs (host_id, host, timeline, seq, hash) VALUES (?, ?, ?, ?, ?)",
			hostID, name, m.Timeline, m.Seq, m.Hash)
		if err != nil {
			return fmt.Errorf("keep the proof of a restore: %w", err)
		}
		return nil
	})
}

func (s *Marks) inHistory(ctx context.Context, now, m api.RegistryMark) (bool, error) {
	switch {
	case history.Newer(m, now) > 0:
		return false, nil
	case m.Seq == now.Seq:
		return m.Hash == now.Hash, nil
	}
	var hash []byte
	err := s.db.sqlite.Read.QueryRowContext(ctx, "SELECT hash FROM events WHERE seq = ?", m.Seq).Scan(&hash)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("look up event of a mark: %w", err)
	}
	return err == nil && hex.EncodeToString(hash) == m.Hash, nil
}

// ReadOnly reports whether the store refuses changes because hosts' marks prove that the database
// is from a backup. reason includes the operator's next action.
func (s *DB) ReadOnly() (reason string, yes bool) {
	reason = s.history.Reason()
	return reason, reason != ""
}

func (s *DB) writable() error {
	if !s.history.Restored() {
		return nil
	}
	return api.Errorf(api.CodeRegistryUnavailable, "nothing was changed, because %s", s.history.Reason())
}

// Doubted returns the sorted names of the hosts that show a mark which this registry has neither
// issued nor signed. The store refuses all requests of these hosts.
func (s *Marks) Doubted() []string { return s.db.history.Doubted() }

// admitCompared refuses the changes of a host that has not shown its mark since the registry
// started: its first report may prove that the database is from a backup.
func (s *DB) admitCompared(host hostcache.Row) error {
	if err := s.history.CheckDoubt(host.ID); err != nil {
		return err
	}
	if s.hosts.WasCompared(host.ID) {
		return nil
	}
	return notHeard(host.Name)
}

func notHeard(name string) error {
	return api.Errorf(api.CodeRegistryUnavailable,
		"nothing was changed: the registry was just started and has not heard from host %s yet; its daemon reports and tries again by itself", name).
		With(api.DetailReportFirst, true)
}
