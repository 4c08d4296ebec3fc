// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// StorageFailed reports whether err of SQLite is about the file or its storage (full, damaged,
// unreadable) and not about a statement or its values. After such an error SQLite may have
// rolled the transaction back by itself, so the transaction must not be used any more.
func StorageFailed(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	// The low byte is the primary code.
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG,
		sqlite3.SQLITE_RANGE, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_MISUSE:
		return false
	}
	return true
}
