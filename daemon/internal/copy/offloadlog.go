// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"bytes"
	"encoding/binary"
	"slices"
)

type offloadLog struct {
	cursor Cursor
	head   []byte
	begun  bool
	until  int64
	// open: the storage has not answered the request to copy n bytes from off.
	open     bool
	off, n   int64
	streamed bool
}

func openOffloadLog(cursor Cursor, src, dst string, sizeBytes int64) (*offloadLog, error) {
	l := &offloadLog{cursor: cursor, head: beginRecord(src, dst, sizeBytes)}
	l.head[0] = recordOffload
	if cursor == nil {
		return l, nil
	}
	log, err := cursor.Load()
	if err != nil {
		return nil, err
	}
	l.read(log)
	return l, nil
}

func (l *offloadLog) read(log []byte) {
	for len(log) > 0 {
		size := offloadRecordSize(log, len(l.head))
		if size == 0 {
			l.streamed = true
			return
		}
		record := log[:size]
		log = log[size:]
		switch record[0] {
		case recordOffload:
			l.begun, l.until, l.open = bytes.Equal(record, l.head), 0, false
		case recordAsked:
			l.open = true
			l.off, l.n = int64(binary.BigEndian.Uint64(record[1:])), int64(binary.BigEndian.Uint64(record[9:]))
		case recordCopied:
			l.open, l.until = false, int64(binary.BigEndian.Uint64(record[1:]))
		case recordRefused:
			l.open = false
		}
	}
}

func (l *offloadLog) begin() error {
	if l.begun {
		return nil
	}
	l.begun, l.until = true, 0
	return l.append(l.head)
}

func (l *offloadLog) asked(off, n int64) error {
	l.open, l.off, l.n = true, off, n
	return l.append(offloadRecord(recordAsked, off, n))
}

func (l *offloadLog) copied(until int64) error {
	l.open, l.until = false, max(l.until, until)
	return l.append(offloadRecord(recordCopied, l.until, 0))
}

func (l *offloadLog) refused() error {
	l.open = false
	return l.append(offloadRecord(recordRefused, 0, 0))
}

func (l *offloadLog) append(record []byte) error {
	if l.cursor == nil {
		return nil
	}
	return l.cursor.Append(record)
}

func offloadRecord(kind byte, a, b int64) []byte {
	record := binary.BigEndian.AppendUint64([]byte{kind}, uint64(a))
	return binary.BigEndian.AppendUint64(record, uint64(b))
}

func (l *offloadLog) openError(dst string, err error) error {
	if !l.open {
		return nil
	}
	return &UnansweredError{Path: dst, Offset: l.off, Bytes: l.n, Err: err}
}

// Restart resets a cursor with an unanswered range: the next copy repeats that request, and then
// starts again. Without such a range needed is false: the cursor may be removed.
func Restart(cursor Cursor) (needed bool, err error) {
	log, err := cursor.Load()
	if err != nil {
		return false, err
	}
	l := &offloadLog{cursor: cursor, head: beginRecord("", "", 0)} // the record of no copy
	l.head[0] = recordOffload
	if l.read(log); !l.open {
		return false, nil
	}
	return true, l.append(slices.Concat(l.head, offloadRecord(recordAsked, l.off, l.n)))
}

// Unanswered reports whether a cursor has an unanswered range: the storage may still write to dst.
func Unanswered(cursor Cursor) (bool, error) {
	log, err := cursor.Load()
	if err != nil {
		return false, err
	}
	l := &offloadLog{head: beginRecord("", "", 0)}
	l.read(log)
	return l.open, nil
}
