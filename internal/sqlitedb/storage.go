// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// StorageFailed reports whether an error of SQLite concerns the file or its storage (full,
// damaged, unreadable) and not a statement. The transaction must then not be used: SQLite may have
// rolled it back.
func StorageFailed(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG,
		sqlite3.SQLITE_RANGE, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_MISUSE:
		return false
	}
	return true
}
