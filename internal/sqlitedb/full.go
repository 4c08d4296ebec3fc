// SPDX-License-Identifier: Apache-2.0

package sqlitedb

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// IsFull reports whether err means that the disk is full. The failed write then has no effect.
func IsFull(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	// SQLITE_IOERR_SHMSIZE is an error of the -shm file, which grows with the log.
	return e.Code() == sqlite3.SQLITE_FULL || e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE
}
