// SPDX-License-Identifier: Apache-2.0

// Package journal keeps ops, their records and the cursors of copies in one
// SQLite file on the host. It owns the tables and promises that what it
// acknowledged survives a power loss; it knows nothing of what the records mean.
package journal
