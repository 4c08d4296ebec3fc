// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"errors"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Violates reports whether a statement was refused by a unique index or primary key over these
// columns. Each column is "table.column", in the order of the index.
func Violates(err error, columns ...string) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return strings.Contains(e.Error(), "failed: "+strings.Join(columns, ", ")+" (")
	}
	return false
}
