// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// Cursor records the completed parts of a copy, with 16 bytes for each chunk with data, so that
// another process can continue it. It belongs to one dst and one unchanged src; if either may have
// changed, start with an empty cursor. Only one copy at a time may use it.
type Cursor interface {
	// Load returns all appended records in order, or nothing.
	Load() ([]byte, error)
	// Append adds a record, which is on stable storage when Append returns nil. If the process
	// dies in Append, the record is complete or absent.
	Append(record []byte) error
}

// The kinds of cursor records.
const (
	// recordBegin starts a copy and invalidates all records before it.
	recordBegin = 'B'
	recordData  = 'D'
	recordZero  = 'Z'
)

func beginRecord(src, dst string, sizeBytes int64) []byte {
	b := []byte{recordBegin}
	b = binary.BigEndian.AppendUint64(b, uint64(sizeBytes))
	b = binary.BigEndian.AppendUint32(b, chunkBytes)
	return binary.BigEndian.AppendUint64(b, xxh3.HashString(src+"\x00"+dst))
}

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

// restore marks the chunks as done that the log records for the copy that begins with firstRecord.
// It returns their runs in the recorded order. found is false if the log is empty, of another
// copy, or not a log.
func (t *chunkTable) restore(log, firstRecord []byte) (runs []run, found bool) {
	log = afterOffload(log, len(firstRecord))
	for len(log) > 0 {
		size := len(firstRecord)
		switch {
		case log[0] == recordBegin && len(log) >= size:
			clear(t.done)
			runs, found = nil, string(log[:size]) == string(firstRecord)
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

const runHeadBytes = 17

func parseRun(log []byte) (r run, size int) {
	if len(log) < runHeadBytes || log[0] != recordData && log[0] != recordZero {
		return run{}, 0
	}
	first, count := binary.BigEndian.Uint64(log[1:]), binary.BigEndian.Uint64(log[9:])
	const maxChunks = 1 << 40
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

// restoreRun marks a run as done. It returns false if the image has no such chunks.
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

// The records of an offloaded copy precede the records of a copy by chunks that continued it.
const (
	// recordOffload starts an offload, and invalidates all records before it.
	recordOffload = 'O'
	// recordAsked: the storage was requested to copy a range, which is unanswered until the next
	// record.
	recordAsked = 'A'
	// recordCopied has an offset: before it, dst equals src on stable storage.
	recordCopied = 'C'
	// recordRefused: the storage answered, and copied nothing.
	recordRefused = 'R'
)

const offloadRecordBytes = 17

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
