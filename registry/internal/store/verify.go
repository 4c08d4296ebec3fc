// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// verifyPage is how many events are read at once: a reader that stays long keeps
// the database's log from being folded.
const verifyPage = 10_000

// AuditCheck is what a look at the whole audit trail found.
type AuditCheck struct {
	At     time.Time
	Events int64
	// Err says where the trail is not what was written; nil if it is.
	Err error
}

// LastAudit returns what the last VerifyAudit found, false if there was none.
func (s *Store) LastAudit() (AuditCheck, bool) {
	if c := s.lastAudit.Load(); c != nil {
		return *c, true
	}
	return AuditCheck{}, false
}

// VerifyAudit reads the trail as far as it is at the time of the call and returns
// how many events it has, or an error that names the first one that is not as it
// was written or is missing. An end that was cut off cannot be seen from the trail
// alone: the marks that hosts show tell (ObserveMark).
func (s *Store) VerifyAudit(ctx context.Context) (int64, error) {
	n, err := s.verifyAudit(ctx, s.marks.current().Seq)
	if ctx.Err() == nil {
		s.lastAudit.Store(&AuditCheck{At: s.now().UTC(), Events: n, Err: err})
	}
	return n, err
}

func (s *Store) verifyAudit(ctx context.Context, end int64) (n int64, err error) {
	type event struct {
		seq           int64
		content, hash []byte
	}
	scan := func(row scanner) (e event, err error) {
		return e, row.Scan(&e.seq, &e.content, &e.hash)
	}
	var prev []byte
	for n < end {
		page, err := readAll(ctx, s, scan, "SELECT seq, content, hash FROM events WHERE seq > ? ORDER BY seq LIMIT ?", n, verifyPage)
		if err != nil {
			return n, fmt.Errorf("read audit trail: %w", err)
		}
		for _, e := range page {
			n++
			if e.seq != n || !bytes.Equal(e.hash, chain(prev, e.content)) {
				return n, fmt.Errorf("the audit trail was changed at or before event %d", n)
			}
			prev = e.hash
		}
		if len(page) == 0 {
			return n, fmt.Errorf("the audit trail ends with event %d and had event %d", n, end)
		}
	}
	return n, nil
}
