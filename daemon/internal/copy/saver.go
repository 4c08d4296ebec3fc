// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// saveAfterBytes of data the cursor is brought up to date, while the other
	// workers go on.
	saveAfterBytes = 128 << 20
	// saveInterval bounds what a slow copy loses.
	saveInterval = time.Second
	// maxUnsavedBytes is the most that is copied again after a kill. Workers
	// wait for the save in progress before they go beyond.
	maxUnsavedBytes = 256 << 20
	// maxSaveChunks bounds one record.
	maxSaveChunks = 1 << 16
)

// saver records in the cursor what is done, never before it is on stable
// storage: it takes the list of what is done, then flushes, then records the
// list. Without a cursor it records nothing; without that and flushed it does not
// flush either. After a failed flush it never does again: the kernel reports lost
// pages once, and a second flush would succeed.
type saver struct {
	cursor Cursor
	dst    End
	table  *chunkTable
	// flushed, where set, is told what a flush has put on stable storage. It must not
	// block.
	flushed func([]run)

	mu       sync.Mutex
	saved    sync.Cond
	pending  []run
	unsaved  int64 // bytes of data claimed and not yet recorded
	due      int64 // of these, bytes that are done since the last save began
	lastSave time.Time
	saving   bool
	failure  error
}

func newSaver(cursor Cursor, dst End, table *chunkTable) *saver {
	s := &saver{cursor: cursor, dst: dst, table: table, lastSave: time.Now()}
	s.saved.L = &s.mu
	return s
}

// resume brings the table to what the cursor says and returns the window to be
// checked: the chunks recorded last, up to what a save may hold.
func (s *saver) resume(srcPath, dstPath string) (window []int, err error) {
	if s.cursor == nil {
		return nil, nil
	}
	log, err := s.cursor.Load()
	if err != nil {
		return nil, err
	}
	begin := beginRecord(srcPath, dstPath, s.table.sizeBytes)
	runs, found := s.table.restore(log, begin)
	if !found {
		clear(s.table.done)
		return nil, s.cursor.Append(begin)
	}
	var bytes int64
	for _, r := range slices.Backward(runs) {
		for i := r.count - 1; i >= 0 && bytes < maxUnsavedBytes; i-- {
			window = append(window, r.first+i)
			bytes += s.table.bytesOf(r.first + i)
		}
	}
	return window, nil
}

// idle says that nobody wants to know what is on stable storage.
func (s *saver) idle() bool { return s.cursor == nil && s.flushed == nil }

// claim is called before n bytes of data are copied. While so much is not
// recorded that a kill would lose more than maxUnsavedBytes, it saves, or waits
// for the save in progress.
func (s *saver) claim(n int64) error {
	if s.idle() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.failure == nil && s.unsaved+n > maxUnsavedBytes {
		if s.saving {
			s.saved.Wait()
		} else {
			s.saveLocked()
		}
	}
	s.unsaved += n
	return s.failure
}

// done notes a run that was written, and saves if it is time.
func (s *saver) done(r run, dataBytes int64) error {
	if s.idle() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, r)
	s.due += dataBytes
	now := s.due >= saveAfterBytes || len(s.pending) >= maxSaveChunks || time.Since(s.lastSave) >= saveInterval
	if now && !s.saving && s.failure == nil {
		s.saveLocked()
	}
	return s.failure
}

// save records what is left when the workers have ended.
func (s *saver) save() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) > 0 && s.failure == nil {
		s.saveLocked()
	}
	return s.failure
}

// saveLocked flushes dst and records what was done before the flush. The lock
// is free meanwhile.
func (s *saver) saveLocked() {
	runs, bytes := s.pending, s.due
	s.pending, s.due, s.saving = nil, 0, true
	s.mu.Unlock()
	err := s.dst.Flush()
	if err == nil && s.flushed != nil {
		s.flushed(slices.Clone(runs))
	}
	if err == nil && s.cursor != nil {
		err = s.cursor.Append(s.table.appendRuns(runs))
	}
	s.mu.Lock()
	s.saving, s.lastSave = false, time.Now()
	s.unsaved -= bytes
	s.failure = errors.Join(s.failure, err)
	s.saved.Broadcast()
}

// appendRuns encodes runs, joined where they meet.
func (t *chunkTable) appendRuns(runs []run) []byte {
	if len(runs) == 0 {
		return nil
	}
	slices.SortFunc(runs, func(a, b run) int { return a.first - b.first })
	joined := runs[:1]
	for _, r := range runs[1:] {
		last := &joined[len(joined)-1]
		if last.zero == r.zero && last.first+last.count == r.first {
			last.count += r.count
		} else {
			joined = append(joined, r)
		}
	}
	var b []byte
	for _, r := range joined {
		b = t.appendRun(b, r)
	}
	return b
}
