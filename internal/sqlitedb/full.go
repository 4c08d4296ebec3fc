// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// IsFull says whether an error is that the disk is full. What was to be written is not
// there then.
func IsFull(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	// The second is of the file that connections share, which grows with the log.
	return e.Code() == sqlite3.SQLITE_FULL || e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE
}
