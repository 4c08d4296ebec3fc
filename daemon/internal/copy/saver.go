// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	saveAfterBytes = 128 << 20
	saveInterval   = time.Second
	// maxUnsavedBytes bounds the data that is copied again after a kill. At this bound, workers
	// wait for the save in progress.
	maxUnsavedBytes = 256 << 20
	maxSaveChunks   = 1 << 16
)

// saver records completed runs in the cursor after a flush. It does not flush if both cursor and
// flushed are nil. After a failed flush it never flushes again: the kernel reports lost pages
// once, and a second flush would succeed.
type saver struct {
	cursor Cursor
	dst    End
	table  *chunkTable
	// flushed, if set, gets the runs on stable storage after a flush. It must not block.
	flushed func([]run)

	mu       sync.Mutex
	saved    sync.Cond
	pending  []run
	unsaved  int64 // claimed, not yet recorded data
	due      int64 // the part completed since the last save began
	lastSave time.Time
	saving   bool
	failure  error
}

func newSaver(cursor Cursor, dst End, table *chunkTable) *saver {
	s := &saver{cursor: cursor, dst: dst, table: table, lastSave: time.Now()}
	s.saved.L = &s.mu
	return s
}

// resume restores the table from the cursor and returns the chunks to check: the last recorded, up
// to maxUnsavedBytes.
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

func (s *saver) idle() bool { return s.cursor == nil && s.flushed == nil }

// claim is called before n bytes of data are copied. If a kill would then lose more than
// maxUnsavedBytes, it saves, or waits for the save in progress.
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

func (s *saver) save() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) > 0 && s.failure == nil {
		s.saveLocked()
	}
	return s.failure
}

// saveLocked flushes dst and records the runs completed before the flush. It releases mu
// meanwhile.
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
