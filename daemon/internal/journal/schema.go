// SPDX-License-Identifier: Apache-2.0

package journal

// schema has the migrations of the file (sqlitedb.Open). A released migration is never edited.
//
// An op's number is its place in the order of creation, so that no clock decides the order. Times
// are RFC 3339 with nanoseconds in UTC.
var schema = []string{`
CREATE TABLE ops (
	number      INTEGER PRIMARY KEY AUTOINCREMENT,
	id          TEXT NOT NULL UNIQUE CHECK (id <> ''),
	kind        TEXT NOT NULL CHECK (kind <> ''),
	group_id    TEXT NOT NULL,
	keys        TEXT NOT NULL CHECK (json_type(keys) = 'array'),
	input       TEXT CHECK (json_valid(input)),
	steps       TEXT NOT NULL CHECK (json_type(steps) = 'array'), -- of objects with name and version, in order
	commit_step TEXT NOT NULL,
	created_at  TEXT NOT NULL CHECK (created_at <> '')
) STRICT;

CREATE INDEX ops_by_group ON ops (group_id, number) WHERE group_id <> '';

CREATE TABLE records (
	op   INTEGER NOT NULL REFERENCES ops (number),
	seq  INTEGER NOT NULL CHECK (seq >= 1),
	at   TEXT NOT NULL CHECK (at <> ''),
	step TEXT NOT NULL,
	kind TEXT NOT NULL CHECK (kind <> ''),
	data TEXT CHECK (json_valid(data)),
	PRIMARY KEY (op, seq)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX records_finished ON records (op) WHERE kind = 'finished';

CREATE TABLE blobs (
	key  TEXT PRIMARY KEY CHECK (key <> ''),
	data BLOB NOT NULL
) STRICT, WITHOUT ROWID;
`}
