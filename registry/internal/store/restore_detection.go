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

// marks is what the registry knows of its own history: how far it is, and what
// hosts have shown that cannot be of it.
type marks struct {
	mu  sync.Mutex
	now api.RegistryMark
	// key signs marks. It never changes.
	key []byte
	// shown are the signed marks that prove a restore, by the id of the host; at most
	// one of a host, the newest. The database has them too.
	shown map[string]shownMark
	// doubted are marks that would prove one and are not signed by this registry, by
	// the id of the host: they count against that host alone.
	doubted map[string]shownMark
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
func (m *marks) load(ctx context.Context, q ledger.Querier, end ledger.End) error {
	m.shown, m.doubted = map[string]shownMark{}, map[string]shownMark{}
	if err := q.QueryRowContext(ctx, "SELECT id, timeline, mark_key FROM registry").Scan(&m.now.RegistryID, &m.now.Timeline, &m.key); err != nil {
		return fmt.Errorf("read identity of the registry: %w", err)
	}
	proofs, err := ledger.QueryAll(ctx, q, scanProof, "SELECT host_id, host, timeline, seq, hash FROM restore_proofs")
	if err != nil {
		return err
	}
	for _, p := range proofs {
		p.mark.RegistryID = m.now.RegistryID
		m.shown[p.hostID] = p.shownMark
	}
	m.advance(end)
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

func (m *marks) current() api.RegistryMark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// advance notes where the audit trail ends on stable storage.
func (m *marks) advance(end ledger.End) {
	hash := hex.EncodeToString(end.Hash)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Seq, m.now.Hash = end.Seq, hash
	m.now = m.signed(m.now)
}

// prove notes a mark that proves a restore, and says whether it is newer than what
// the host has shown before, and whether the host has shown one for the first time.
func (m *marks) prove(hostID, name string, mark api.RegistryMark) (newest, first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.doubted, hostID)
	// An operator may have accepted it since it was looked at.
	if mark.Timeline < m.now.Timeline {
		return false, false
	}
	before, known := m.shown[hostID]
	if known && newer(mark, before.mark) <= 0 {
		return false, false
	}
	m.shown[hostID] = shownMark{name, mark}
	return true, !known
}

// doubt notes a mark that this history did not give out and nobody signed, and says
// whether that is news.
func (m *marks) doubt(hostID, name string, mark api.RegistryMark) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mark.Timeline < m.now.Timeline {
		return false
	}
	_, known := m.doubted[hostID]
	m.doubted[hostID] = shownMark{name, mark}
	return !known
}

// trust ends the doubt about what a host shows.
func (m *marks) trust(hostID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.doubted, hostID)
}

// begin starts a timeline, for which nothing that was shown is a proof.
func (m *marks) begin(timeline int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Timeline = timeline
	m.now = m.signed(m.now)
	clear(m.shown)
	clear(m.doubted)
}

// newestShown is the newest timeline of the marks that hosts have shown.
func (m *marks) newestShown() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var timeline int64
	for _, s := range m.shown {
		timeline = max(timeline, s.mark.Timeline)
	}
	return timeline
}

// reason says why the registry is read-only and what to do; "" if it is not.
func (m *marks) reason() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.shown) == 0 {
		return ""
	}
	hosts := make([]shownMark, 0, len(m.shown))
	for _, s := range m.shown {
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
		hosts[0].host, others, hosts[0].mark.Seq, hosts[0].mark.Timeline, m.now.Seq, m.now.Timeline)
}

// Mark returns how far the registry's history is on stable storage. It costs
// nothing.
func (s *Store) Mark() api.RegistryMark { return s.marks.current() }

// ObserveMark compares a mark that a host shows with the registry's history. A
// mark that this history cannot have given out, and that this registry has signed,
// proves that the database was restored from a backup, or that the end of its audit
// trail was cut off, and makes the store read-only. One that is not signed is the
// word of one host: that host alone is refused until it shows another one, or a
// restore is accepted. Marks of other registries and of older timelines prove
// nothing.
func (s *Store) ObserveMark(ctx context.Context, hostID, name string, m api.RegistryMark) error {
	now := s.marks.current()
	if m.RegistryID != now.RegistryID || m.Timeline < now.Timeline || m.Seq <= 0 {
		s.marks.trust(hostID)
		return nil
	}
	ours, err := s.gaveOut(ctx, now, m)
	if err != nil {
		return err
	}
	if ours {
		s.marks.trust(hostID)
		return nil
	}
	if !s.marks.hasSigned(m) {
		if s.marks.doubt(hostID, name, m) && s.onDoubt != nil {
			s.onDoubt(name)
		}
		return s.checkDoubt(hostID)
	}
	newest, first := s.marks.prove(hostID, name, m)
	if first && s.onReadOnly != nil {
		s.onReadOnly(s.marks.reason())
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
		if s.marks.current().Timeline > m.Timeline {
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

// gaveOut says whether m is of the history that now is the end of.
func (s *Store) gaveOut(ctx context.Context, now, m api.RegistryMark) (bool, error) {
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
	reason = s.marks.reason()
	return reason, reason != ""
}

// Doubted returns the names of the hosts that show a mark which this registry has
// neither given out nor signed, in order. Nothing that they ask for is done.
func (s *Store) Doubted() []string {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	names := make([]string, 0, len(s.marks.doubted))
	for _, d := range s.marks.doubted {
		names = append(names, d.host)
	}
	slices.Sort(names)
	return names
}

// checkDoubt refuses what a host asks for that shows a mark which nobody gave out.
func (s *Store) checkDoubt(hostID string) error {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	d, yes := s.marks.doubted[hostID]
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
	if !s.marks.restored() {
		return nil
	}
	return api.Errorf(api.CodeRegistryUnavailable, "nothing was changed, because %s", s.marks.reason())
}

// admitHeard refuses the changes of a host that has not shown since the start
// which history it knows. By them a database from a backup would go on, until the
// first report proves what it is.
func (s *Store) admitHeard(host hostRow) error {
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

func (m *marks) restored() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.shown) > 0
}
