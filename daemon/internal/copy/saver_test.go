// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"errors"
	"testing"
	"testing/synctest"
)

// slowEnd flushes on command.
type slowEnd struct {
	End

	flush chan error
}

func (e *slowEnd) Flush() error { return <-e.flush }

// memoryCursor counts records.
type memoryCursor struct{ records int }

func (c *memoryCursor) Load() ([]byte, error) { return nil, nil }

func (c *memoryCursor) Append([]byte) error {
	c.records++
	return nil
}

// claimAll lets two workers copy all chunks, from the saver's view, and returns how many were
// claimed; the flush of dst hangs meanwhile.
func claimAll(t *testing.T, s *saver) (claimed *int, ended chan error) {
	t.Helper()
	claimed, ended = new(int), make(chan error, 2)
	work := make(chan int)
	go func() {
		defer close(work)
		for chunk := range s.table.done {
			work <- chunk
			*claimed++
		}
	}()
	for range 2 {
		go func() {
			for chunk := range work {
				if err := errors.Join(s.claim(chunkBytes), s.done(run{first: chunk, count: 1}, chunkBytes)); err != nil {
					for range work { // sweep would stop handing out chunks
					}
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	synctest.Wait()
	return claimed, ended
}

func TestNoMoreThanTheReworkLimitIsEverUnrecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end, cursor := &slowEnd{flush: make(chan error)}, &memoryCursor{}
		s := newSaver(cursor, end, newChunkTable(1<<30))
		claimed, ended := claimAll(t, s)
		// The waiting worker has one more.
		if limit := maxUnsavedBytes/chunkBytes + 1; *claimed > limit {
			t.Errorf("%d chunks were handed out while none is recorded, limit %d", *claimed, limit)
		}
		close(end.flush)
		if err := errors.Join(<-ended, <-ended, s.save()); err != nil {
			t.Fatal(err)
		}
		if s.unsaved != 0 || len(s.pending) != 0 || cursor.records < 1024/256 {
			t.Errorf("unsaved %d, pending %d, records %d", s.unsaved, len(s.pending), cursor.records)
		}
	})
}

func TestAfterAFailedFlushNothingMoreIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end, cursor := &slowEnd{flush: make(chan error)}, &memoryCursor{}
		s := newSaver(cursor, end, newChunkTable(1<<30))
		_, ended := claimAll(t, s)
		end.flush <- errors.New("lost")
		if err := errors.Join(<-ended, <-ended); err == nil {
			t.Error("the workers go on")
		}
		if err := s.save(); err == nil || cursor.records != 0 {
			t.Errorf("error %v, %d records", err, cursor.records)
		}
	})
}
