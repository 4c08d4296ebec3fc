// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// memoryEnd is an image in memory, all data.
type memoryEnd struct {
	content []byte
	onRead  func(off int64)
	onWrite func(off int64)
}

func newMemoryEnd(chunks int) *memoryEnd {
	nothing := func(int64) {}
	return &memoryEnd{content: make([]byte, chunks*chunkBytes), onRead: nothing, onWrite: nothing}
}

func (e *memoryEnd) ReadAt(p []byte, off int64) (int, error) {
	e.onRead(off)
	return copy(p, e.content[off:]), nil
}

func (e *memoryEnd) WriteAt(p []byte, off int64) (int, error) {
	e.onWrite(off)
	return copy(e.content[off:], p), nil
}

func (e *memoryEnd) Size() int64                       { return int64(len(e.content)) }
func (e *memoryEnd) Extent(int64) (int64, bool, error) { return e.Size(), true, nil }
func (e *memoryEnd) Flush() error                      { return nil }
func (e *memoryEnd) Close() error                      { return nil }

func (e *memoryEnd) Zero(off, n int64) error {
	clear(e.content[off : off+n])
	return nil
}

// copyInMemory returns a copy of 16 chunks of data by two workers. The read of chunk 8 of src takes
// longer than the saver's interval between two flushes. The write of the last chunk waits until dst
// is read: forever if dst were read back only after the copy.
func copyInMemory() (s *stream, src, dst *memoryEnd) {
	const chunks = 16
	src, dst = newMemoryEnd(chunks), newMemoryEnd(chunks)
	for i := range src.content {
		src.content[i] = byte(1 + i%251)
	}
	src.onRead = func(off int64) {
		if off == 8*chunkBytes {
			<-time.After(2 * saveInterval)
		}
	}
	var isRead sync.WaitGroup
	isRead.Add(1)
	done := sync.OnceFunc(isRead.Done)
	dst.onRead = func(int64) { done() }
	dst.onWrite = func(off int64) {
		if off == dst.Size()-chunkBytes {
			isRead.Wait()
		}
	}
	s = newStream(&Spec{Verify: true, Workers: 2}, src, dst, newMeter(nil, src.Size()))
	return s, src, dst
}

func TestDstIsReadBackWhileTheCopyGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, src, dst := copyInMemory()
		if err := errors.Join(s.run(t.Context()), s.verify(t.Context())); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(src.content, dst.content) {
			t.Error("the copy is not equal")
		}
	})
}

func TestOnlyWhatWasFlushedIsReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, dst := copyInMemory()
		var flushed [16]atomic.Bool
		add := s.saver.flushed
		s.saver.flushed = func(runs []run) {
			for _, r := range runs {
				for i := range r.count {
					flushed[r.first+i].Store(true)
				}
			}
			add(runs)
		}
		read := dst.onRead
		dst.onRead = func(off int64) {
			if !flushed[off/chunkBytes].Load() {
				t.Errorf("chunk %d was read back before a flush", off/chunkBytes)
			}
			read(off)
		}
		if err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestACopyThatIsFoundWrongIsNotFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, dst := copyInMemory()
		dst.onRead = func(off int64) { dst.content[off] ^= 1 }
		dst.onWrite = func(off int64) {
			if off >= 12*chunkBytes {
				<-time.After(time.Hour)
			}
		}
		var mismatch *MismatchError
		if err := s.run(t.Context()); !errors.As(err, &mismatch) {
			t.Fatalf("error %v", err)
		}
		if last := dst.content[dst.Size()-chunkBytes]; last != 0 {
			t.Error("the last chunk was written all the same")
		}
	})
}

// A device that wraps around at half of its claimed size writes the second half of a volume over
// the first, which was correct when it was read back.
func TestASampleOfWhatWasReadBackIsReadAgain(t *testing.T) {
	src, dst := newMemoryEnd(2*sampleEvery), newMemoryEnd(2*sampleEvery)
	for i := range src.content {
		src.content[i] = byte(1 + i%251)
	}
	s := newStream(&Spec{Verify: true}, src, dst, newMeter(nil, src.Size()))
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for chunk := range 2 * sampleEvery {
		s.table.setVerified(chunk)
	}
	dst.content[sampleEvery*chunkBytes+5] ^= 1
	var mismatch *MismatchError
	if err := s.verify(t.Context()); !errors.As(err, &mismatch) || mismatch.Offset != sampleEvery*chunkBytes+5 {
		t.Errorf("error %v", err)
	}
}
