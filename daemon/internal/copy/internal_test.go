// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/volferry/volferry/daemon/internal/openfile"
)

func TestWithoutODirectTheCopyIsEqualAndVerified(t *testing.T) {
	const size = 5<<20 + 512
	dir := t.TempDir()
	src := Image{Path: filepath.Join(dir, "src"), Format: "raw"}
	dst := Image{Path: filepath.Join(dir, "dst"), Format: "raw"}
	want := bytes.Repeat([]byte("volferry"), size/8)
	if err := errors.Join(os.WriteFile(src.Path, want, 0o600), os.WriteFile(dst.Path, make([]byte, size), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := Copy(t.Context(), Spec{Src: src, Dst: dst, Verify: true, OpenEnd: func(path string, writable bool) (End, error) {
		return openFile(openfile.Files{}, path, writable, 0)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dst.Path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("not equal (%v)", err)
	}
}

func TestODirectRefusedAtTheFirstTransferFallsBackForGood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openFile(openfile.Files{}, path, true, unix.O_DIRECT)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	direct := 0
	move := func(file *os.File, p []byte, _ int64) (int, error) {
		if file == f.direct {
			direct++
			return 0, unix.EINVAL
		}
		return len(p), nil
	}
	for range 3 {
		if n, err := f.transfer(move, newBuffer(8192), 4096); n != 8192 || err != nil {
			t.Errorf("moved %d, %v", n, err)
		}
	}
	if direct != 1 {
		t.Errorf("O_DIRECT was tried %d times", direct)
	}
}

func TestEveryWayToZeroAFileZeroesExactlyTheRange(t *testing.T) {
	for way := range zeroWrite + 1 {
		path := filepath.Join(t.TempDir(), "x")
		want := bytes.Repeat([]byte{7}, 3<<20+512)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := openFile(openfile.Files{}, path, true, unix.O_DIRECT)
		if err != nil {
			t.Fatal(err)
		}
		f.zeroing.Store(way)
		const off, n = 64 << 10, 3<<20 + 512 - 64<<10
		if err := errors.Join(f.Zero(off, n), f.Flush(), f.Close()); err != nil {
			t.Fatalf("way %d: %v", way, err)
		}
		clear(want[off : off+n])
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("way %d: not zeroed (%v)", way, err)
		}
	}
}

// TestSpansCoverEveryChunkOnce: for all extents and completed chunks, the spans are the other
// chunks, in order, and no data is in a hole.
func TestSpansCoverEveryChunkOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 20*chunkBytes).Draw(t, "size")
		end := &mapEnd{size: size, edges: rapid.SliceOfN(rapid.Int64Range(1, size), 0, 8).Draw(t, "edges")}
		slices.Sort(end.edges)
		table := newChunkTable(size)
		for i := range table.done {
			table.done[i] = rapid.Bool().Draw(t, "done")
		}
		at := int64(0)
		for s, err := range spans(size, table.isDone, end) {
			if err != nil {
				t.Fatal(err)
			}
			for ; at < s.off; at += chunkBytes {
				if !table.isDone(int(at / chunkBytes)) {
					t.Fatalf("chunk at %d is left out", at)
				}
			}
			for i := range s.chunks() {
				if table.isDone(s.firstChunk() + i) {
					t.Fatalf("chunk %d is copied again", s.firstChunk()+i)
				}
			}
			if s.hole && end.dataIn(s.off, s.off+s.n) {
				t.Fatalf("data in the hole %+v of %v", s, end.edges)
			}
			at = s.off + s.n
		}
		for ; at < size; at += chunkBytes {
			if !table.isDone(int(at / chunkBytes)) {
				t.Fatalf("chunk at %d is left out", at)
			}
		}
	})
}

// mapEnd alternates between a hole and data at its edges, and begins with a hole.
type mapEnd struct {
	End

	size  int64
	edges []int64
}

func (e *mapEnd) Extent(off int64) (int64, bool, error) {
	data := false
	for _, edge := range e.edges {
		if edge > off {
			return edge, data, nil
		}
		data = !data
	}
	return e.size, data, nil
}

func (e *mapEnd) dataIn(from, to int64) bool {
	for off := from; off < to; {
		until, data, _ := e.Extent(off)
		if data {
			return true
		}
		off = until
	}
	return false
}

// TestCursorRestoresWhatWasRecorded, whatever the order of the workers. A damaged log restores
// nothing that it should not.
func TestCursorRestoresWhatWasRecorded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 40*chunkBytes).Draw(t, "size")
		table, begin := newChunkTable(size), beginRecord("src", "dst", size)
		log := slices.Clone(begin)
		order := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for i := range table.done {
				if !yield(i) {
					return
				}
			}
		})).Draw(t, "order")
		recorded := order[:rapid.IntRange(0, len(order)).Draw(t, "recorded")]
		for group := range slices.Chunk(recorded, 7) {
			var runs []run
			for _, chunk := range group {
				zero := rapid.Bool().Draw(t, "zero")
				h := hash{byte(chunk), 1}
				if zero {
					h = table.zeroHash(chunk)
				}
				table.set(chunk, h)
				runs = append(runs, run{chunk, 1, zero})
			}
			log = append(log, table.appendRuns(runs)...)
		}
		restored := newChunkTable(size)
		if _, found := restored.restore(log, begin); !found {
			t.Fatal("not found")
		}
		if !slices.Equal(restored.done, table.done) || !slices.Equal(restored.hashes, table.hashes) {
			t.Fatal("not what was recorded")
		}
		if _, found := newChunkTable(size).restore(log, beginRecord("src", "other", size)); found {
			t.Fatal("found for another dst")
		}
	})
}

// FuzzRestore: no log makes the parser panic.
func FuzzRestore(f *testing.F) {
	begin := beginRecord("src", "dst", 4<<20)
	table := newChunkTable(4 << 20)
	f.Add(table.appendRun(slices.Clone(begin), run{0, 2, false}))
	f.Add(table.appendRun(slices.Clone(begin), run{3, 1, true}))
	f.Fuzz(func(_ *testing.T, log []byte) {
		newChunkTable(4<<20).restore(log, begin)
	})
}

func TestATornRecordIsCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cursor")
	cursor := NewFileCursor(path)
	if err := errors.Join(cursor.Append([]byte("first")), cursor.Append([]byte("second")), cursor.Close()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(whole) - 1; cut > len(whole)-len("second")-frameHeadBytes; cut-- {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		log, err := cursor.Load()
		if err != nil || string(log) != "first" {
			t.Fatalf("cut at %d: %q, %v", cut, log, err)
		}
		if err := errors.Join(cursor.Append([]byte("third")), cursor.Close()); err != nil {
			t.Fatal(err)
		}
		if log, err = cursor.Load(); err != nil || string(log) != "firstthird" {
			t.Fatalf("cut at %d, then appended: %q, %v", cut, log, err)
		}
	}
}
