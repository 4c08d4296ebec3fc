// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// history is what the registry knows of its own history: how far it is, and what
// hosts have shown that cannot be of it.
type history struct {
	mu  sync.Mutex
	now api.RegistryMark
	// key signs marks. It never changes.
	key []byte
	// proofs are the signed marks that prove a restore, by the id of the host; at most
	// one of a host, the newest. The database has them too.
	proofs map[string]shownMark
	// doubts are marks that would prove one and are not signed by this registry, by
	// the id of the host: they count against that host alone.
	doubts map[string]shownMark
}

type shownMark struct {
	host string
	mark api.RegistryMark
}

// newer orders marks of one registry.
func newer(a, b api.RegistryMark) int {
	return cmp.Or(cmp.Compare(a.Timeline, b.Timeline), cmp.Compare(a.Seq, b.Seq))
}

// load is for the start.
func (h *history) load(ctx context.Context, q ledger.Querier, end ledger.End) error {
	h.proofs, h.doubts = map[string]shownMark{}, map[string]shownMark{}
	if err := q.QueryRowContext(ctx, "SELECT id, timeline, mark_key FROM registry").Scan(&h.now.RegistryID, &h.now.Timeline, &h.key); err != nil {
		return fmt.Errorf("read identity of the registry: %w", err)
	}
	proofs, err := ledger.QueryAll(ctx, q, scanProof, "SELECT host_id, host, timeline, seq, hash FROM restore_proofs")
	if err != nil {
		return err
	}
	for _, p := range proofs {
		p.mark.RegistryID = h.now.RegistryID
		h.proofs[p.hostID] = p.shownMark
	}
	h.advance(end)
	return nil
}

// restoreProof is a row of restore_proofs.
type restoreProof struct {
	shownMark
	hostID string
}

func scanProof(row ledger.Scanner) (p restoreProof, err error) {
	return p, row.Scan(&p.hostID, &p.host, &p.mark.Timeline, &p.mark.Seq, &p.mark.Hash)
}

func (h *history) current() api.RegistryMark {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// advance notes where the audit trail ends on stable storage.
func (h *history) advance(end ledger.End) {
	hash := hex.EncodeToString(end.Hash)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Seq, h.now.Hash = end.Seq, hash
	h.now = h.signed(h.now)
}

// addProof notes a mark that proves a restore, and says whether it is newer than what
// the host has shown before, and whether the host has shown one for the first time.
func (h *history) addProof(hostID, name string, mark api.RegistryMark) (newest, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.doubts, hostID)
	// An operator may have accepted it since it was looked at.
	if mark.Timeline < h.now.Timeline {
		return false, false
	}
	before, known := h.proofs[hostID]
	if known && newer(mark, before.mark) <= 0 {
		return false, false
	}
	h.proofs[hostID] = shownMark{name, mark}
	return true, !known
}

// addDoubt notes a mark that this history did not give out and nobody signed, and says
// whether that is news.
func (h *history) addDoubt(hostID, name string, mark api.RegistryMark) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if mark.Timeline < h.now.Timeline {
		return false
	}
	_, known := h.doubts[hostID]
	h.doubts[hostID] = shownMark{name, mark}
	return !known
}

// clearDoubt ends the doubt about what a host shows.
func (h *history) clearDoubt(hostID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.doubts, hostID)
}

// beginTimeline starts a timeline, for which nothing that was shown is a proof.
func (h *history) beginTimeline(timeline int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Timeline = timeline
	h.now = h.signed(h.now)
	clear(h.proofs)
	clear(h.doubts)
}

// newestShown is the newest timeline of the marks that hosts have shown.
func (h *history) newestShown() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var timeline int64
	for _, s := range h.proofs {
		timeline = max(timeline, s.mark.Timeline)
	}
	return timeline
}

// reason says why the registry is read-only and what to do; "" if it is not.
func (h *history) reason() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.proofs) == 0 {
		return ""
	}
	hosts := make([]shownMark, 0, len(h.proofs))
	for _, s := range h.proofs {
		hosts = append(hosts, s)
	}
	slices.SortFunc(hosts, func(a, b shownMark) int { return cmp.Or(newer(b.mark, a.mark), cmp.Compare(a.host, b.host)) })
	others := ""
	if len(hosts) > 1 {
		others = fmt.Sprintf(" and %d more", len(hosts)-1)
	}
	return fmt.Sprintf("the registry's database is older than what its hosts were told, so it was restored from a backup: host %s%s "+
		"knows of event %d of timeline %d, which this registry has signed, and the database, which has event %d of timeline %d as its last, does not. "+
		"Compare the registry with the hosts (`volferryctl instance list` on each), then run `volferry-registry accept-restore --evidence TEXT`",
		hosts[0].host, others, hosts[0].mark.Seq, hosts[0].mark.Timeline, h.now.Seq, h.now.Timeline)
}

// Mark returns how far the registry's history is on stable storage. It costs
// nothing.
func (s *Store) Mark() api.RegistryMark { return s.history.current() }

// ObserveMark compares a mark that a host shows with the registry's history. A
// mark that this history cannot have given out, and that this registry has signed,
// proves that the database was restored from a backup, or that the end of its audit
// trail was cut off, and makes the store read-only. One that is not signed is the
// word of one host: that host alone is refused until it shows another one, or a
// restore is accepted. Marks of other registries and of older timelines prove
// nothing.
func (s *Store) ObserveMark(ctx context.Context, hostID, name string, m api.RegistryMark) error {
	now := s.history.current()
	if m.RegistryID != now.RegistryID || m.Timeline < now.Timeline || m.Seq <= 0 {
		s.history.clearDoubt(hostID)
		return nil
	}
	ours, err := s.inHistory(ctx, now, m)
	if err != nil {
		return err
	}
	if ours {
		s.history.clearDoubt(hostID)
		return nil
	}
	if !s.history.hasSigned(m) {
		if s.history.addDoubt(hostID, name, m) && s.onDoubt != nil {
			s.onDoubt(name)
		}
		return s.checkDoubt(hostID)
	}
	newest, first := s.history.addProof(hostID, name, m)
	if first && s.onReadOnly != nil {
		s.onReadOnly(s.history.reason())
	}
	if newest {
		return s.keepProof(ctx, hostID, name, m)
	}
	return nil
}

// keepProof writes down a mark that proves a restore, so that the registry knows it
// at its next start, and `accept-restore` knows that there is something to accept.
func (s *Store) keepProof(ctx context.Context, hostID, name string, m api.RegistryMark) error {
	return s.ledger.Submit(ctx, func(ctx context.Context, tx *ledger.Tx) error {
		if s.history.current().Timeline > m.Timeline {
			return nil // it was accepted meanwhile
		}
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO restore_proofs (host_id, host, timeline, seq, hash) VALUES (?, ?, ?, ?, ?)",
			hostID, name, m.Timeline, m.Seq, m.Hash)
		if err != nil {
			return fmt.Errorf("keep the proof of a restore: %w", err)
		}
		return nil
	})
}

// inHistory says whether m is of the history that now is the end of.
func (s *Store) inHistory(ctx context.Context, now, m api.RegistryMark) (bool, error) {
	switch {
	case newer(m, now) > 0:
		return false, nil
	case m.Seq == now.Seq:
		return m.Hash == now.Hash, nil
	}
	var hash []byte
	err := s.db.Read.QueryRowContext(ctx, "SELECT hash FROM events WHERE seq = ?", m.Seq).Scan(&hash)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("look up event of a mark: %w", err)
	}
	return err == nil && hex.EncodeToString(hash) == m.Hash, nil
}

// ReadOnly says whether the store takes no changes because it was found to be
// older than what hosts were told, and if so why and what to do.
func (s *Store) ReadOnly() (reason string, yes bool) {
	reason = s.history.reason()
	return reason, reason != ""
}

// Doubted returns the names of the hosts that show a mark which this registry has
// neither given out nor signed, in order. Nothing that they ask for is done.
func (s *Store) Doubted() []string {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	names := make([]string, 0, len(s.history.doubts))
	for _, d := range s.history.doubts {
		names = append(names, d.host)
	}
	slices.Sort(names)
	return names
}

// checkDoubt refuses what a host asks for that shows a mark which nobody gave out.
func (s *Store) checkDoubt(hostID string) error {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	d, yes := s.history.doubts[hostID]
	if !yes {
		return nil
	}
	return api.Errorf(api.CodeRegistryUnavailable,
		"nothing was changed: host %s says that it was told of event %d of timeline %d, which is not in the registry's history and is not signed by this registry. "+
			"Either that host's memory is wrong or made up, or the registry was restored from a backup of before it signed its marks: "+
			"compare the two (`volferryctl instance list` on the host), then fence the host, or stop the registry and run `volferry-registry accept-restore --without-proof --evidence TEXT`",
		d.host, d.mark.Seq, d.mark.Timeline)
}

// writable refuses every change while the store is read-only.
func (s *Store) writable() error {
	if !s.history.restored() {
		return nil
	}
	return api.Errorf(api.CodeRegistryUnavailable, "nothing was changed, because %s", s.history.reason())
}

// admitCompared refuses the changes of a host that has not shown since the start
// which history it knows. By them a database from a backup would go on, until the
// first report proves what it is.
func (s *Store) admitCompared(host hostRow) error {
	if err := s.checkDoubt(host.id); err != nil {
		return err
	}
	if s.hosts.wasCompared(host.id) {
		return nil
	}
	return api.Errorf(api.CodeRegistryUnavailable,
		"nothing was changed: the registry was just started and has not heard from host %s yet; its daemon reports and tries again by itself", host.name).
		With(api.DetailReportFirst, true)
}

func (h *history) restored() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.proofs) > 0
}
