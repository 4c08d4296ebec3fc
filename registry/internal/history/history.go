// SPDX-License-Identifier: Apache-2.0

// Package history knows how far the registry's history is, and finds out that the database
// was restored from a backup: a host then shows a mark that this history has not given out.
// It keeps what it knows in memory. It knows neither the database nor what is refused after
// a restore: package store does.
package history

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// Shown is a mark that a host has shown and that does not belong to this history.
type Shown struct {
	HostID, HostName string
	Mark             api.RegistryMark
}

// History is what the registry knows of its own history. It is safe for concurrent use.
type History struct {
	mu  sync.Mutex
	now api.RegistryMark
	// key signs marks. It never changes.
	key []byte
	// proofs are the signed marks that prove a restore, by the id of the host; at most
	// one of a host, the newest. The database has them too.
	proofs map[string]Shown
	// doubts are marks that would prove one and are not signed by this registry, by
	// the id of the host: they count against that host alone.
	doubts map[string]Shown
}

// New returns the history of the registry, in the timeline that now names, with the stored
// proofs of a restore.
func New(now api.RegistryMark, key []byte, proofs []Shown) *History {
	h := &History{now: now, key: key, proofs: map[string]Shown{}, doubts: map[string]Shown{}}
	for _, p := range proofs {
		h.proofs[p.HostID] = p
	}
	return h
}

// Newer compares two marks of one registry: it is positive if a is newer, negative if b is,
// and 0 if they are equally old.
func Newer(a, b api.RegistryMark) int {
	return cmp.Or(cmp.Compare(a.Timeline, b.Timeline), cmp.Compare(a.Seq, b.Seq))
}

// Signed returns the mark with the signature of this registry.
func (h *History) Signed(mark api.RegistryMark) api.RegistryMark { return sign(h.key, mark) }

// HasSigned reports whether this registry has signed the mark.
func (h *History) HasSigned(mark api.RegistryMark) bool { return isSigned(h.key, mark) }

// Now returns the mark of what is on stable storage.
func (h *History) Now() api.RegistryMark {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// Advance notes the number and the hash of the last event on stable storage.
func (h *History) Advance(seq int64, sum []byte) {
	hash := hex.EncodeToString(sum)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Seq, h.now.Hash = seq, hash
	h.now = h.Signed(h.now)
}

// AddProof notes a mark that proves a restore. It reports whether the mark is newer than those
// that the host has shown before, and whether it is the first proof that the host shows.
func (h *History) AddProof(s Shown) (newest, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.doubts, s.HostID)
	// An operator may have accepted it since it was looked at.
	if s.Mark.Timeline < h.now.Timeline {
		return false, false
	}
	before, known := h.proofs[s.HostID]
	if known && Newer(s.Mark, before.Mark) <= 0 {
		return false, false
	}
	h.proofs[s.HostID] = s
	return true, !known
}

// AddDoubt notes a mark that this history did not give out and that is not signed. It says
// whether it is the first that the host shows.
func (h *History) AddDoubt(s Shown) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.Mark.Timeline < h.now.Timeline {
		return false
	}
	_, known := h.doubts[s.HostID]
	h.doubts[s.HostID] = s
	return !known
}

// ClearDoubt ends the doubt about a host.
func (h *History) ClearDoubt(hostID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.doubts, hostID)
}

// BeginTimeline starts a timeline. Marks that were shown before prove nothing against it.
func (h *History) BeginTimeline(timeline int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Timeline = timeline
	h.now = h.Signed(h.now)
	clear(h.proofs)
	clear(h.doubts)
}

// NewestTimeline returns the newest timeline in the marks that hosts have shown.
func (h *History) NewestTimeline() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var timeline int64
	for _, s := range h.proofs {
		timeline = max(timeline, s.Mark.Timeline)
	}
	return timeline
}

// Reason says why the registry is read-only and what the operator can do; "" if it is not.
func (h *History) Reason() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.proofs) == 0 {
		return ""
	}
	hosts := make([]Shown, 0, len(h.proofs))
	for _, s := range h.proofs {
		hosts = append(hosts, s)
	}
	slices.SortFunc(hosts, func(a, b Shown) int { return cmp.Or(Newer(b.Mark, a.Mark), cmp.Compare(a.HostName, b.HostName)) })
	others := ""
	if len(hosts) > 1 {
		others = fmt.Sprintf(" and %d more", len(hosts)-1)
	}
	return fmt.Sprintf("the registry's database is older than what its hosts were told, so it was restored from a backup: host %s%s "+
		"knows of event %d of timeline %d, which this registry has signed, and the database, which has event %d of timeline %d as its last, does not. "+
		"Compare the registry with the hosts (`volferryctl instance list` on each), then run `volferry-registry accept-restore --evidence TEXT`",
		hosts[0].HostName, others, hosts[0].Mark.Seq, hosts[0].Mark.Timeline, h.now.Seq, h.now.Timeline)
}

// Restored reports whether a host has proved that the database was restored.
func (h *History) Restored() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.proofs) > 0
}

// Doubted returns, in order, the names of the hosts that show a mark which this registry
// has neither given out nor signed. All their requests are refused.
func (h *History) Doubted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make([]string, 0, len(h.doubts))
	for _, d := range h.doubts {
		names = append(names, d.HostName)
	}
	slices.Sort(names)
	return names
}

// CheckDoubt refuses the request of a host that shows a mark which nobody has given out.
func (h *History) CheckDoubt(hostID string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, yes := h.doubts[hostID]
	if !yes {
		return nil
	}
	return api.Errorf(api.CodeRegistryUnavailable,
		"nothing was changed: host %s says that it was told of event %d of timeline %d, which is not in the registry's history and is not signed by this registry. "+
			"Either that host's memory is wrong or made up, or the registry was restored from a backup of before it signed its marks: "+
			"compare the two (`volferryctl instance list` on the host), then fence the host, or stop the registry and run `volferry-registry accept-restore --without-proof --evidence TEXT`",
		d.HostName, d.Mark.Seq, d.Mark.Timeline)
}
