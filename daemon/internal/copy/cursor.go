// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// Cursor keeps what a copy has done, so that another process can go on. It is a log: 16
// bytes for each chunk with data. It is for one src, as it is now, and one dst: if either
// may have changed, the caller begins with an empty cursor. One copy uses it at a time.
type Cursor interface {
	// Load returns everything that was appended, in order; nothing if nothing
	// was.
	Load() ([]byte, error)
	// Append adds a record. When it returns nil the record is on stable storage;
	// if it does not return, the record is there whole or not at all.
	Append(record []byte) error
}

// The kinds of cursor records.
const (
	// recordBegin starts a copy and voids all records before it.
	recordBegin = 'B'
	// recordData has the hashes of consecutive chunks.
	recordData = 'D'
	// recordZero says that consecutive chunks are zeros.
	recordZero = 'Z'
)

// beginRecord identifies the copy that a cursor belongs to.
func beginRecord(src, dst string, sizeBytes int64) []byte {
	b := []byte{recordBegin}
	b = binary.BigEndian.AppendUint64(b, uint64(sizeBytes))
	b = binary.BigEndian.AppendUint32(b, chunkBytes)
	return binary.BigEndian.AppendUint64(b, xxh3.HashString(src+"\x00"+dst))
}

// appendRun adds the record of a run whose hashes are in the table.
func (t *chunkTable) appendRun(b []byte, r run) []byte {
	kind := byte(recordData)
	if r.zero {
		kind = recordZero
	}
	b = append(b, kind)
	b = binary.BigEndian.AppendUint64(b, uint64(r.first))
	b = binary.BigEndian.AppendUint64(b, uint64(r.count))
	if !r.zero {
		for i := range r.count {
			h := t.get(r.first + i)
			b = append(b, h[:]...)
		}
	}
	return b
}

// restore marks done what the log says of the copy that begin identifies, and
// returns the runs in the order in which they were recorded. found is false,
// and nothing is done, if the log is empty, of another copy or not a log.
func (t *chunkTable) restore(log, begin []byte) (runs []run, found bool) {
	log = afterOffload(log, len(begin))
	for len(log) > 0 {
		size := len(begin)
		switch {
		case log[0] == recordBegin && len(log) >= size:
			clear(t.done)
			runs, found = nil, string(log[:size]) == string(begin)
		case log[0] == recordBegin:
			return nil, false
		default:
			var r run
			if r, size = parseRun(log); size == 0 {
				return nil, false
			}
			if found && !t.restoreRun(r, log[runHeadBytes:size]) {
				return nil, false
			}
			runs = append(runs, r)
		}
		log = log[size:]
	}
	return runs, found
}

// runHeadBytes come before the hashes of a run.
const runHeadBytes = 17

// parseRun reads a run record and its size, which is 0 if it is none.
func parseRun(log []byte) (r run, size int) {
	if len(log) < runHeadBytes || log[0] != recordData && log[0] != recordZero {
		return run{}, 0
	}
	first, count := binary.BigEndian.Uint64(log[1:]), binary.BigEndian.Uint64(log[9:])
	const maxChunks = 1 << 40 // more than any image has
	if first > maxChunks || count > maxChunks {
		return run{}, 0
	}
	r, size = run{int(first), int(count), log[0] == recordZero}, runHeadBytes
	if !r.zero {
		if r.count > (len(log)-size)/len(hash{}) {
			return run{}, 0
		}
		size += r.count * len(hash{})
	}
	return r, size
}

// restoreRun says false if the image has no such chunks.
func (t *chunkTable) restoreRun(r run, hashes []byte) bool {
	if r.first+r.count > len(t.done) {
		return false
	}
	for i := range r.count {
		if r.zero {
			t.set(r.first+i, t.zeroHash(r.first+i))
		} else {
			t.set(r.first+i, hash(hashes[i*len(hash{}):]))
		}
	}
	return true
}

// The kinds of cursor records of a copy that the storage makes. They come before those of a copy by
// chunks, if it became one.
const (
	// recordOffload starts it, and voids all records before it.
	recordOffload = 'O'
	// recordAsked says that the storage is asked for a range: until another record comes it is
	// open.
	recordAsked = 'A'
	// recordCopied says up to where dst has what src has, on stable storage.
	recordCopied = 'C'
	// recordRefused says that the storage has answered, and copied nothing.
	recordRefused = 'R'
)

// offloadRecordBytes is the size of all of them but the first, and an upper bound of none.
const offloadRecordBytes = 17

// offloadRecordSize is the size of the record with which a log begins, 0 if it is none of an
// offload.
func offloadRecordSize(log []byte, headBytes int) int {
	size := 0
	switch log[0] {
	case recordOffload:
		size = headBytes
	case recordAsked, recordCopied, recordRefused:
		size = offloadRecordBytes
	}
	if len(log) < size {
		return 0
	}
	return size
}

// afterOffload is what a log has behind the records of a copy that the storage was to make.
func afterOffload(log []byte, headBytes int) []byte {
	for len(log) > 0 {
		size := offloadRecordSize(log, headBytes)
		if size == 0 {
			break
		}
		log = log[size:]
	}
	return log
}
