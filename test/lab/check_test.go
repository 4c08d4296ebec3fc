// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/test/lab/workload"
)

// written is a volume that a writer without a guest has written to.
type written struct {
	t       *testing.T
	volume  Volume
	history *History
	now     time.Time // when what is done is acknowledged
}

// newWritten makes a filled volume on which the first n operations of a stream
// were done and acknowledged.
func newWritten(t *testing.T, n uint64) *written {
	t.Helper()
	const blocks = 2048
	fill := Fill{Seed: 7, Percent: 20}
	w := &written{t: t, volume: Volume{Path: filepath.Join(t.TempDir(), "vol"), Format: "raw"}}
	if err := MakeVolume(t.Context(), w.volume, blocks*workload.BlockSize, fill); err != nil {
		t.Fatal(err)
	}
	w.history = &History{Stream: workload.Stream{Seed: 7, Blocks: blocks, Mix: workload.DefaultMix}, Fill: fill}
	w.history.begin(1)
	w.ack(n)
	return w
}

// next is the operation that comes after those acknowledged.
func (w *written) next() workload.Op {
	return w.history.Stream.At(uint64(len(w.history.Acks)))
}

// ack does the next n operations and acknowledges them.
func (w *written) ack(n uint64) {
	w.t.Helper()
	for range n {
		op := w.next()
		w.do(op)
		w.history.acknowledge(Ack{Op: op, HostTime: w.now})
	}
}

// do does an operation as a disk does. A discard leaves things as they are.
func (w *written) do(op workload.Op) {
	w.t.Helper()
	buf := make([]byte, workload.BlockSize)
	for b := op.Block; b < op.Block+op.Count && op.Kind != workload.Discard; b++ {
		if op.Kind == workload.Write {
			workload.PutRecord(buf, w.history.Stream.Seed, op.Seq, b)
		}
		w.put(b, buf)
	}
}

// put writes one block behind the checker's back.
func (w *written) put(block uint64, data []byte) {
	w.t.Helper()
	w.edit(func(f *os.File) error {
		_, err := f.WriteAt(data, int64(block*workload.BlockSize))
		return err
	})
}

func (w *written) get(block uint64) []byte {
	w.t.Helper()
	data := make([]byte, workload.BlockSize)
	w.edit(func(f *os.File) error {
		_, err := f.ReadAt(data, int64(block*workload.BlockSize))
		return err
	})
	return data
}

func (w *written) edit(change func(*os.File) error) {
	w.t.Helper()
	f, err := os.OpenFile(w.volume.Path, os.O_RDWR, 0)
	if err == nil {
		err = change(f)
		_ = f.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// lastWritten returns a block whose last operation was an acknowledged write,
// other than the given ones.
func (w *written) lastWritten(not ...uint64) uint64 {
	w.t.Helper()
next:
	for b := w.history.Stream.First; w.history.covers(b); b++ {
		for _, n := range not {
			if b == n {
				continue next
			}
		}
		seq, ok := workload.RecordSeq(w.get(b))
		if ok && seq != workload.FillSeq {
			return b
		}
	}
	w.t.Fatal("no block was written")
	return 0
}

func (w *written) check(opts ...CheckOption) *Report {
	w.t.Helper()
	r, err := Check(w.t.Context(), w.volume, w.history, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// mustFail demands that the check fails, and for this reason.
func (w *written) mustFail(reason string) {
	w.t.Helper()
	err := w.check().Err()
	if err == nil {
		w.t.Fatalf("check passed, want it to fail: %s", reason)
	}
	if !strings.Contains(err.Error(), reason) {
		w.t.Errorf("check failed with %q, want %q in it", err, reason)
	}
}

func TestCheckPassesWhatIsRight(t *testing.T) {
	w := newWritten(t, 1000)
	r := w.check()
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Acked != 1000 || r.Found != 1000 || r.Blocks != 2048 || r.Written == 0 {
		t.Errorf("report is %+v", r)
	}
}

func TestTwoWritersOfOneVolumeAreJudgedEachByItsPart(t *testing.T) {
	w := newWritten(t, 0)
	whole := w.history.Stream.Blocks
	parts := make([]*History, 2)
	for i := range parts {
		parts[i] = &History{
			Stream: workload.Stream{Seed: uint64(70 + i), First: uint64(i) * whole / 2, Blocks: whole / 2, Mix: workload.DefaultMix},
			Volume: whole, Fill: w.history.Fill,
		}
		parts[i].begin(1)
		w.history = parts[i]
		w.ack(300)
	}
	for _, w.history = range parts {
		if err := w.check().Err(); err != nil {
			t.Error(err)
		}
	}
	w.history = parts[1]
	block := w.lastWritten()
	w.put(block, make([]byte, workload.BlockSize))
	w.mustFail("holds zeroes")
	w.history = parts[0]
	if err := w.check().Err(); err != nil {
		t.Errorf("the other writer's part is damaged, and this one's was found to be: %v", err)
	}
}

func TestCheckFailsOnOneFlippedByte(t *testing.T) {
	w := newWritten(t, 1000)
	block := w.lastWritten()
	data := w.get(block)
	data[2000] ^= 1
	w.put(block, data)
	w.mustFail("with a wrong checksum")
	if r := w.check(); r.Bad != 1 || r.Found != r.Acked-1 {
		t.Errorf("report is %+v, want one bad block and one operation lost", r)
	}
}

func TestCheckFailsOnAFlippedByteInTheFill(t *testing.T) {
	w := newWritten(t, 0)
	for b := range w.history.Stream.Blocks {
		if workload.Filled(7, b, 20) {
			data := w.get(b)
			data[4095] ^= 0x80
			w.put(b, data)
			break
		}
	}
	w.mustFail("the initial fill with a wrong checksum")
}

func TestCheckFailsOnARolledBackVolume(t *testing.T) {
	w := newWritten(t, 500)
	before, err := os.ReadFile(w.volume.Path)
	if err != nil {
		t.Fatal(err)
	}
	w.ack(500)
	if err := os.WriteFile(w.volume.Path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	w.mustFail("acknowledged operations lost")
}

func TestCheckFailsOnALostTail(t *testing.T) {
	w := newWritten(t, 1000)
	for w.next().Kind != workload.Write {
		w.ack(1)
	}
	w.history.acknowledge(Ack{Op: w.next()}) // but never done
	w.mustFail("acknowledged operations lost")
}

func TestCheckFailsOnSwappedBlocks(t *testing.T) {
	w := newWritten(t, 1000)
	a := w.lastWritten()
	b := w.lastWritten(a)
	dataA, dataB := w.get(a), w.get(b)
	w.put(a, dataB)
	w.put(b, dataA)
	w.mustFail("of block")
}

func TestCheckFailsOnAnotherVolumesContent(t *testing.T) {
	w := newWritten(t, 1000)
	block := w.lastWritten()
	seq, _ := workload.RecordSeq(w.get(block))
	data := make([]byte, workload.BlockSize)
	workload.PutRecord(data, 8, seq, block)
	w.put(block, data)
	w.mustFail("of another volume")
}

func TestCheckFailsOnDataWhereNobodyWrote(t *testing.T) {
	w := newWritten(t, 0)
	for b := range w.history.Stream.Blocks {
		if !workload.Filled(7, b, 20) {
			w.put(b, []byte("something"))
			break
		}
	}
	w.mustFail("foreign data")
}

func TestCheckFailsOnTruncatedVolume(t *testing.T) {
	w := newWritten(t, 10)
	if err := os.Truncate(w.volume.Path, 2047*workload.BlockSize); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), w.volume, w.history); err == nil {
		t.Error("check passed on a volume that lost its last block")
	}
}

func TestCheckAllowsWhatWasInFlightAndNoMore(t *testing.T) {
	w := newWritten(t, 100)
	next := w.history.Sessions[0].next()
	for seq := uint64(100); seq < next; seq++ { // done, but the guest was not heard of again
		w.do(w.history.Stream.At(seq))
	}
	if err := w.check().Err(); err != nil {
		t.Errorf("operations in flight: %v", err)
	}
	for w.history.Stream.At(next).Kind != workload.Write {
		next++
	}
	w.do(w.history.Stream.At(next))
	w.mustFail("record")
}

func TestCheckAllowsNothingUnackedAfterAnOrderlyStop(t *testing.T) {
	w := newWritten(t, 100)
	w.history.session().Ended = true
	next := w.history.session().next()
	for w.history.Stream.At(next).Kind != workload.Write {
		next++
	}
	w.do(w.history.Stream.At(next))
	w.mustFail("record")
}

// Zeroes are what a lost block reads as most often. A zeroing operation that
// was never reached must not excuse them.
func TestCheckIsNotFooledByZeroingThatWasNeverBegun(t *testing.T) {
	w := newWritten(t, 1000)
	var excuse workload.Op
	for seq := uint64(1010); excuse.Kind != workload.Zero; seq++ {
		excuse = w.history.Stream.At(seq)
	}
	for b := excuse.Block; b < excuse.Block+excuse.Count; b++ {
		if seq, ok := workload.RecordSeq(w.get(b)); ok && seq != workload.FillSeq {
			w.put(b, make([]byte, workload.BlockSize))
			w.mustFail("holds zeroes")
			return
		}
	}
	t.Fatal("no block to lose; choose another seed")
}

func TestCheckTakesADiscardForZeroOrThePreviousContent(t *testing.T) {
	w := newWritten(t, 0)
	for w.next().Kind != workload.Discard {
		w.ack(1)
	}
	w.ack(1)
	if err := w.check().Err(); err != nil {
		t.Errorf("previous content after a discard: %v", err)
	}
	op := w.history.Acks[len(w.history.Acks)-1].Op
	w.put(op.Block, make([]byte, workload.BlockSize))
	if err := w.check().Err(); err != nil {
		t.Errorf("zeroes after a discard: %v", err)
	}
	stale := make([]byte, workload.BlockSize)
	workload.PutRecord(stale, 7, 1<<40, op.Block)
	w.put(op.Block, stale)
	w.mustFail("zeroes or")
}

func TestCheckForgivesUnflushedWritesOnlyWhenAsked(t *testing.T) {
	w := newWritten(t, 500)
	for w.next().Kind != workload.Write || w.next().Flush {
		w.ack(1)
	}
	before, err := os.ReadFile(w.volume.Path)
	if err != nil {
		t.Fatal(err)
	}
	w.ack(1)
	if err := os.WriteFile(w.volume.Path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	w.mustFail("acknowledged operations lost")
	if err := w.check(UnflushedMayBeLost()).Err(); err != nil {
		t.Errorf("power was lost before the flush: %v", err)
	}
}

func TestCheckForgivesWhatAPowerCutLostAndNothingLater(t *testing.T) {
	w := newWritten(t, 500)
	unflushed := func() bool { return w.next().Kind == workload.Write && !w.next().Flush }
	lose := func(n uint64) {
		t.Helper()
		for !unflushed() {
			w.ack(1)
		}
		before, err := os.ReadFile(w.volume.Path)
		if err != nil {
			t.Fatal(err)
		}
		w.ack(n)
		if err := os.WriteFile(w.volume.Path, before, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lose(1)
	cut := time.Now()
	w.now = cut.Add(time.Second)
	for flushed := false; !flushed; { // which does not bring back what was lost
		flushed = w.next().Flush
		w.ack(1)
	}
	w.mustFail("acknowledged operations lost")
	if err := w.check(PowerWasCutAt(cut)).Err(); err != nil {
		t.Errorf("lost in the power cut: %v", err)
	}
	lose(1)
	again := w.now.Add(time.Second)
	w.now = again.Add(time.Second)
	w.ack(100)
	if err := w.check(PowerWasCutAt(cut, again)).Err(); err != nil {
		t.Errorf("lost in two power cuts: %v", err)
	}
	lose(20) // some are where an operation that may be under way would leave zeroes
	if err := w.check(PowerWasCutAt(cut, again)).Err(); err == nil {
		t.Error("what was lost after both power cuts is forgiven")
	}
}

func TestCheckOfAVolumeAsOfATimeForgivesWhatCameAfterItAlone(t *testing.T) {
	w := newWritten(t, 300)
	early, err := os.ReadFile(w.volume.Path)
	if err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Second)
	w.ack(100)
	asOf := w.now
	late, err := os.ReadFile(w.volume.Path)
	if err != nil {
		t.Fatal(err)
	}
	w.now = asOf.Add(time.Second)
	w.ack(100)
	for text, content := range map[string][]byte{"wrong": early, "as then": late} {
		if err := os.WriteFile(w.volume.Path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := w.check().Err(); err == nil {
			t.Errorf("the volume that is %s is taken for that of now", text)
		}
		if err := w.check(IsAsOf(asOf)).Err(); (err == nil) != (text == "as then") {
			t.Errorf("the volume that is %s: %v", text, err)
		}
	}
}

func TestCheckRefusesAHistoryOfAnotherStream(t *testing.T) {
	w := newWritten(t, 10)
	w.history.Acks[3].Op.Block++
	if _, err := Check(t.Context(), w.volume, w.history); err == nil {
		t.Error("check took the word of a guest that ran another stream")
	}
}
