// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"database/sql"
	"errors"
)

// maxStatements bounds how many statements are kept prepared. There are far
// fewer texts of queries in the program.
const maxStatements = 512

// prepared is a statement that is closed with its transaction, or with the
// database.
type prepared struct{ *sql.Stmt }

// statements are the writer's prepared statements, by the text of their query.
// Only the writer's goroutine uses them.
type statements struct {
	db       *sql.DB
	prepared map[string]prepared
	// unknown are the queries of the running transaction that were not prepared:
	// there is one connection, and the transaction has it.
	unknown map[string]struct{}
}

func newStatements(db *sql.DB) *statements {
	return &statements{db: db, prepared: map[string]prepared{}, unknown: map[string]struct{}{}}
}

// learn prepares, between two transactions, what the last one could not. A query
// that cannot be prepared goes on as it is: whoever made it has seen its error.
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

// statement returns the prepared statement of query for tx, false if there is
// none yet.
func (s *statements) statement(ctx context.Context, tx *sql.Tx, query string) (prepared, bool) {
	stmt, ok := s.prepared[query]
	if !ok {
		s.unknown[query] = struct{}{}
		return prepared{}, false
	}
	return prepared{tx.StmtContext(ctx, stmt.Stmt)}, true
}

// reset closes all statements between two transactions, and returns their texts.
func (s *statements) reset() (queries []string, err error) {
	for query, stmt := range s.prepared {
		queries = append(queries, query)
		err = errors.Join(err, stmt.Close())
	}
	clear(s.prepared)
	return queries, err
}
