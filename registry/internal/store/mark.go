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
	"strconv"
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// marks is what the registry knows of its own history: how far it is, and what
// hosts have shown that cannot be of it.
type marks struct {
	mu  sync.Mutex
	now api.RegistryMark
	// shown are the marks that prove a restore, by the id of the host; at most one
	// of a host, the newest.
	shown map[string]shownMark
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
func (m *marks) load(ctx context.Context, q querier, end trailEnd) error {
	m.shown = map[string]shownMark{}
	if err := q.QueryRowContext(ctx, "SELECT id, timeline FROM registry").Scan(&m.now.RegistryID, &m.now.Timeline); err != nil {
		return fmt.Errorf("read identity of the registry: %w", err)
	}
	m.advance(end)
	return nil
}

func (m *marks) current() api.RegistryMark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// advance notes where the audit trail ends on stable storage.
func (m *marks) advance(end trailEnd) {
	hash := hex.EncodeToString(end.hash)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Seq, m.now.Hash = end.seq, hash
}

// prove notes a mark that proves a restore, and says whether that is news.
func (m *marks) prove(hostID, name string, mark api.RegistryMark) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	// An operator may have accepted it since it was looked at.
	if mark.Timeline < m.now.Timeline {
		return false
	}
	before, known := m.shown[hostID]
	if known && newer(mark, before.mark) <= 0 {
		return false
	}
	m.shown[hostID] = shownMark{name, mark}
	return !known
}

// begin starts a timeline, for which nothing that was shown is a proof.
func (m *marks) begin(timeline int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Timeline = timeline
	clear(m.shown)
}

// newestShown is the newest timeline of the marks that prove a restore.
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
		"knows of event %d of timeline %d, and the database, which has event %d of timeline %d as its last, does not. "+
		"Compare the registry with the hosts (`volferryctl instance list` on each), then run `volferry-registry accept-restore --evidence TEXT`",
		hosts[0].host, others, hosts[0].mark.Seq, hosts[0].mark.Timeline, m.now.Seq, m.now.Timeline)
}

// Mark returns how far the registry's history is on stable storage. It costs
// nothing.
func (s *Store) Mark() api.RegistryMark { return s.marks.current() }

// ObserveMark compares a mark that a host shows with the registry's history. A
// mark that this history cannot have given out proves that the database was
// restored from a backup, or that the end of its audit trail was cut off, and
// makes the store read-only. Marks of other registries and of older timelines
// prove nothing.
func (s *Store) ObserveMark(ctx context.Context, hostID, name string, m api.RegistryMark) error {
	now := s.marks.current()
	if m.RegistryID != now.RegistryID || m.Timeline < now.Timeline || m.Seq <= 0 {
		return nil
	}
	ours, err := s.gaveOut(ctx, now, m)
	if ours || err != nil {
		return err
	}
	if s.marks.prove(hostID, name, m) && s.onReadOnly != nil {
		s.onReadOnly(s.marks.reason())
	}
	return nil
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
// older than what hosts were told, and if so why and what to do. This is kept in
// memory alone: after a restart the next report of such a host finds it again,
// and until then no change of it is taken.
func (s *Store) ReadOnly() (reason string, yes bool) {
	reason = s.marks.reason()
	return reason, reason != ""
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

// epochsOfTimeline is how many epochs a host can have in one timeline. Those of a
// new one begin above all that the history which was lost can have given out.
const epochsOfTimeline = 1 << 20

// AcceptRestore takes an operator's word that the registry was compared with the
// hosts, and starts a new timeline: marks of older ones prove nothing any more.
// It is the one change that a read-only store takes, and is allowed at any time.
//
// Every host gets a new epoch with it, for whatever one was told in the lost
// history: a host that was fenced there would otherwise be refused for ever, one
// that has not heard of its fence would be believed, and attachments that the
// database does not know would be used while it gives their volumes to others. No
// host is fenced: each lets go of what it does not have any more, and rejoins.
// Until then it is behind (checkSettled).
func (s *Store) AcceptRestore(ctx context.Context, call Call, evidence string) (api.RegistryMark, error) {
	if err := checkEvidence("evidence", evidence); err != nil {
		return api.RegistryMark{}, err
	}
	if call.Host != nil {
		return api.RegistryMark{}, api.Errorf(api.CodePermissionDenied, "only an operator can accept that the registry was restored")
	}
	return mutateIf(ctx, s, call, "registry.accept_restore", evidence, admitAlways, func(ctx context.Context, tx *changeTx) (api.RegistryMark, error) {
		var id string
		var before int64
		if err := tx.QueryRowContext(ctx, "SELECT id, timeline FROM registry").Scan(&id, &before); err != nil {
			return api.RegistryMark{}, fmt.Errorf("read timeline: %w", err)
		}
		timeline := max(before, s.marks.newestShown()) + 1
		if err := tx.exec(ctx, "UPDATE registry SET timeline = ?", timeline); err != nil {
			return api.RegistryMark{}, err
		}
		tx.onCommit(func() { s.marks.begin(timeline) })
		if err := s.renewEpochs(ctx, tx, timeline); err != nil {
			return api.RegistryMark{}, err
		}
		event, err := tx.addEvent(ctx, api.Event{
			What: "registry.accept_restore", Object: "registry/" + id,
			From: strconv.FormatInt(before, 10), To: strconv.FormatInt(timeline, 10),
			Details: map[string]any{"evidence": evidence, "reason": s.marks.reason()},
		})
		return api.RegistryMark{RegistryID: id, Timeline: timeline, Seq: event.Seq, Hash: hex.EncodeToString(tx.end.hash)}, err
	})
}

// renewEpochs gives every host the first epoch of a timeline.
func (s *Store) renewEpochs(ctx context.Context, tx *changeTx, timeline int64) error {
	tx.forgetHosts()
	if err := tx.exec(ctx, "UPDATE hosts SET epoch = max(epoch, ?) + 1, behind = 1", timeline*epochsOfTimeline); err != nil {
		return err
	}
	hosts, err := queryAll(ctx, tx, scanHostRow, hostQuery)
	if err != nil {
		return err
	}
	tx.onCommit(func() {
		for _, h := range hosts {
			s.hosts.store(h, "")
		}
	})
	return nil
}

// checkSettled refuses to give a host a volume that another host may have, by a
// history that was lost in a restore: one that reaches the volume's place and has
// not come back since. A host lets go of such volumes when it comes back, and one
// that is fenced is kept from them by who has fenced it.
func (tx *changeTx) checkSettled(ctx context.Context, verb, volume string, l api.Location, hostID string) error {
	behind, err := tx.hostsBehind(ctx)
	if err != nil {
		return err
	}
	for _, h := range behind {
		if h.id == hostID {
			continue
		}
		scope, err := scopeOf(ctx, tx, h.id, l)
		if err != nil {
			return err
		}
		if scope == scopeShared {
			return api.Errorf(api.CodeRegistryUnavailable,
				"cannot %s volume %s now: the registry was restored from a backup, and host %s, which reaches %s, has not come back since and may have it; "+
					"start volferryd there, or fence the host if it cannot touch the volume any more", verb, volume, h.name, place(l)).With("host", h.name)
		}
	}
	return nil
}

// admitAlways is for the change that ends being read-only.
func admitAlways(context.Context, *Store, *changeTx) error { return nil }
