// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

// Rates computes rates from the newest moves of the site.
type Rates struct{ db *store.DB }

// Copy returns the rate of the newest completed migrations into a pool, in bytes per second from
// start to end; 0 if unknown.
func (s *Rates) Copy(ctx context.Context, pool string) (float64, error) {
	return ledger.View(ctx, s.db.Reader(), func(q ledger.Querier) (rate float64, err error) {
		if err = q.QueryRowContext(ctx, `SELECT COALESCE(SUM(bytes) * 1e6 / SUM(took_us), 0) FROM (
				SELECT json_extract(dst, '$.size_bytes') AS bytes, finished_us - started_us AS took_us FROM migrations
				WHERE state = 'completed' AND json_extract(dst, '$.pool') = ? AND finished_us > started_us AND method NOT IN ('save', 'live')
				ORDER BY finished_us DESC LIMIT 5)`, pool).Scan(&rate); err != nil {
			err = fmt.Errorf("read rate of migrations: %w", err)
		}
		return rate, err
	})
}
