// SPDX-License-Identifier: Apache-2.0

// Package history keeps the registry's history mark in memory. It detects that the database was
// restored from a backup: then a host shows a mark that is not in this history. Package store
// decides which requests to refuse after a restore.
package history

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// Shown is a mark that a host has shown and that is not in this history.
type Shown struct {
	HostID, HostName string
	Mark             api.RegistryMark
}

// History has the newest mark of the registry's history, and the marks of hosts that contradict
// it. It is safe for concurrent use.
type History struct {
	mu  sync.Mutex
	now api.RegistryMark
	// key signs marks. It never changes.
	key []byte
	// proofs has the newest signed mark of each host that proves a restore, by host id. The
	// database has them too.
	proofs map[string]Shown
	// doubts has marks outside of this history without this registry's signature, by host id. Such
	// a mark counts only against its host.
	doubts map[string]Shown
}

// New returns a history with now's id and timeline, the key for signatures, and the stored proofs
// of a restore from a backup.
func New(now api.RegistryMark, key []byte, proofs []Shown) *History {
	h := &History{now: now, key: key, proofs: map[string]Shown{}, doubts: map[string]Shown{}}
	for _, p := range proofs {
		h.proofs[p.HostID] = p
	}
	return h
}

// Newer compares two marks of a registry: it returns a positive number if a is newer, a negative
// one if b is newer, else 0.
func Newer(a, b api.RegistryMark) int {
	return cmp.Or(cmp.Compare(a.Timeline, b.Timeline), cmp.Compare(a.Seq, b.Seq))
}

// Signed returns the mark with the signature of this registry.
func (h *History) Signed(mark api.RegistryMark) api.RegistryMark { return sign(h.key, mark) }

// HasSigned reports whether this registry has signed the mark.
func (h *History) HasSigned(mark api.RegistryMark) bool { return isSigned(h.key, mark) }

// Now returns the mark of the newest change on stable storage.
func (h *History) Now() api.RegistryMark {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// Advance sets the number and the hash of the last event on stable storage.
func (h *History) Advance(seq int64, sum []byte) {
	hash := hex.EncodeToString(sum)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Seq, h.now.Hash = seq, hash
	h.now = h.Signed(h.now)
}

// AddProof adds a mark that proves that the database was restored. newest reports whether it is
// newer than the host's earlier proof, first whether it is the host's first proof.
func (h *History) AddProof(s Shown) (newest, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.doubts, s.HostID)
	// A restore may have been accepted since the caller checked the mark.
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

// AddDoubt adds an unsigned mark that is not in this history, and reports whether it is the host's
// first such mark.
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

// ClearDoubt forgets the mark that AddDoubt has added for a host.
func (h *History) ClearDoubt(hostID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.doubts, hostID)
}

// BeginTimeline starts a timeline after a restore of the database. Marks shown before no longer
// count.
func (h *History) BeginTimeline(timeline int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Timeline = timeline
	h.now = h.Signed(h.now)
	clear(h.proofs)
	clear(h.doubts)
}

// NewestTimeline returns the newest timeline in the marks of AddProof, 0 if there is none.
func (h *History) NewestTimeline() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var timeline int64
	for _, s := range h.proofs {
		timeline = max(timeline, s.Mark.Timeline)
	}
	return timeline
}

// Reason returns why the registry is read-only and what the operator can do, "" if it is not.
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

// Doubted returns the sorted names of the hosts that show a mark which this registry has neither
// issued nor signed.
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

// CheckDoubt returns registry_unavailable for a host that shows an unsigned mark outside of this
// history.
func (h *History) CheckDoubt(hostID string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, yes := h.doubts[hostID]
	if !yes {
		return nil
	}
	return api.Errorf(api.CodeRegistryUnavailable,
		"nothing was changed: host %s says that it was told of event %d of timeline %d, which is not in the registry's history and is not signed by this registry. "+
			"Either that host's memory is wrong or made up, or this database has another key than the registry that told the host: "+
			"compare the two (`volferryctl instance list` on the host), then fence the host, or stop the registry and run `volferry-registry accept-restore --without-proof --evidence TEXT`",
		d.HostName, d.Mark.Seq, d.Mark.Timeline)
}
