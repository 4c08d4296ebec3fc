// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// verifyPage is the number of events per read transaction. A long transaction prevents the
// database's log from being emptied.
const verifyPage = 1000

// LastAudit returns the result of the last VerifyAudit, false if there was none.
func (l *Ledger) LastAudit() (AuditCheck, bool) {
	if c := l.lastAudit.Load(); c != nil {
		return *c, true
	}
	return AuditCheck{}, false
}

// VerifyAudit verifies the hashes of the trail as of the call. It returns the number of events, or
// an error that names the first changed or missing event. It cannot detect that the stored end was
// cut off.
func (l *Ledger) VerifyAudit(ctx context.Context) (int64, error) {
	n, err := l.verifyAudit(ctx, l.writer.stored.Load())
	if ctx.Err() == nil {
		l.lastAudit.Store(&AuditCheck{At: l.now().UTC(), Events: n, Err: err})
	}
	return n, err
}

func (l *Ledger) verifyAudit(ctx context.Context, end int64) (n int64, err error) {
	var prev []byte
	for n < end {
		before := n
		err := EachRow(ctx, l.db.Read, func(row Scanner) (more bool, err error) {
			var (
				seq           int64
				content, hash sql.RawBytes
			)
			if err := row.Scan(&seq, &content, &hash); err != nil {
				return false, err
			}
			n++
			if seq != n || !bytes.Equal(hash, chain(prev, content)) {
				return false, errAuditChanged
			}
			prev = append(prev[:0], hash...)
			return true, nil
		}, "SELECT seq, content, hash FROM events WHERE seq > ? ORDER BY seq LIMIT ?", n, verifyPage)
		switch {
		case errors.Is(err, errAuditChanged):
			return n, fmt.Errorf("the audit trail was changed at or before event %d", n)
		case err != nil:
			return n, fmt.Errorf("read audit trail: %w", Unreadable(err))
		case n == before:
			return n, fmt.Errorf("the audit trail ends with event %d and had event %d", n, end)
		}
	}
	return n, nil
}

var errAuditChanged = errors.New("an event is not as it was written")
