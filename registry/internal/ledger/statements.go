// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"database/sql"
	"errors"
)

// maxStatements bounds the prepared statements. The program has far fewer different queries.
const maxStatements = 512

// prepared is a statement that its users do not close: its transaction or the database does.
type prepared struct{ *sql.Stmt }

type statements struct {
	db       *sql.DB
	prepared map[string]prepared
	// unknown has the running transaction's queries that are not prepared yet: the transaction
	// holds the only connection.
	unknown map[string]struct{}
}

func newStatements(db *sql.DB) *statements {
	return &statements{db: db, prepared: map[string]prepared{}, unknown: map[string]struct{}{}}
}

// learn prepares, between two transactions, the unprepared queries of the last one. It ignores
// errors: the query's caller has got them.
func (s *statements) learn(ctx context.Context) {
	for query := range s.unknown {
		if len(s.prepared) < maxStatements {
			stmt, err := s.db.PrepareContext(ctx, query) //nolint:sqlclosecheck // it is kept
			if err == nil {
				s.prepared[query] = prepared{stmt}
			}
		}
	}
	clear(s.unknown)
}

func (s *statements) statement(ctx context.Context, tx *sql.Tx, query string) (prepared, bool) {
	stmt, ok := s.prepared[query]
	if !ok {
		s.unknown[query] = struct{}{}
		return prepared{}, false
	}
	return prepared{tx.StmtContext(ctx, stmt.Stmt)}, true
}

// reset closes all statements and returns their texts. It must be called between two transactions.
func (s *statements) reset() (queries []string, err error) {
	for query, stmt := range s.prepared {
		queries = append(queries, query)
		err = errors.Join(err, stmt.Close())
	}
	clear(s.prepared)
	return queries, err
}
