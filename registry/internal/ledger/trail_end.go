// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
)

// End is the end of the audit trail: the number of its newest event, 0 if there is none, and the
// hash of the whole trail.
type End struct {
	Seq  int64
	Hash []byte
}

// ReadEnd returns the end of the stored trail.
func ReadEnd(ctx context.Context, q Querier) (end End, err error) {
	err = q.QueryRowContext(ctx, "SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").Scan(&end.Seq, &end.Hash)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return end, fmt.Errorf("read end of audit trail: %w", err)
	}
	return end, nil
}

func chain(prev, content []byte) []byte {
	h := sha256.New()
	h.Write(prev)
	h.Write(content)
	return h.Sum(nil)
}
