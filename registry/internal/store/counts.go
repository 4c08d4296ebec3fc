// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Counts has the numbers of objects in the registry.
type Counts struct {
	Instances     int
	Volumes       int
	Locks         int // volumes locked by a migration
	NeedsOperator int
	Attachments   map[api.AttachmentState]int
	Hosts         map[string]int // by status
	Behind        int            // hosts that have not rejoined since a restore
}

// Counts returns the current numbers.
func (s *Store) Counts(ctx context.Context) (Counts, error) {
	return ledger.View(ctx, s.sqlite.Read, func(q ledger.Querier) (Counts, error) {
		c := Counts{Attachments: map[api.AttachmentState]int{}, Hosts: map[string]int{}}
		if err := q.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM instances), (SELECT count(*) FROM volumes),
			(SELECT count(*) FROM migrations WHERE state NOT IN ('completed', 'cancelled', 'error')),
			(SELECT count(*) FROM migrations WHERE state = 'needs_operator')`).
			Scan(&c.Instances, &c.Volumes, &c.Locks, &c.NeedsOperator); err != nil {
			return c, fmt.Errorf("count: %w", err)
		}
		scan := func(row ledger.Scanner) (api.AttachmentState, error) {
			var (
				state api.AttachmentState
				n     int
			)
			err := row.Scan(&state, &n)
			c.Attachments[state] = n
			return state, err
		}
		if _, err := ledger.QueryAll(ctx, q, scan, "SELECT state, count(*) FROM attachments GROUP BY state"); err != nil {
			return c, err
		}
		hosts, err := ledger.QueryAll(ctx, q, s.Hosts.scan, hostQuery)
		if err != nil {
			return c, err
		}
		for _, h := range hosts {
			c.Hosts[h.Status]++
			if h.Behind {
				c.Behind++
			}
		}
		return c, nil
	})
}
