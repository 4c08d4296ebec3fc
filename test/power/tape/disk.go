// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
)

type block = [blockSize]byte

// disk is one disk: as it is, and as it was at a cut.
type disk struct {
	number int
	size   int64
	live   *os.File
	base   *os.File // what live was when the recording began

	mu sync.RWMutex
	// settled are the blocks that differ from base after the entries up to upTo.
	settled map[int64]*block
	upTo    int
	// cut are the blocks that differ from settled: what came after the last flush and
	// survived, and what was written to the disk of the cut since.
	cut map[int64]*block
}

// layer is a place for blocks, over what is below it.
type layer struct {
	into  map[int64]*block
	below func(number int64, into *block) error
}

// write puts data at an offset of a multiple of 512. keep says which of the blocks, counted
// from the first one touched, are written.
func (l layer) write(data []byte, offset int64, keep func(block int64) bool) error {
	first := offset / blockSize
	for len(data) > 0 {
		number, within := offset/blockSize, offset%blockSize
		n := min(int64(len(data)), blockSize-within)
		if keep(number - first) {
			b := l.into[number]
			if b == nil {
				b = new(block)
				if n < blockSize {
					if err := l.below(number, b); err != nil {
						return err
					}
				}
				l.into[number] = b
			}
			copy(b[within:], data[:n])
		}
		data, offset = data[n:], offset+n
	}
	return nil
}

func whole(int64) bool { return true }

func (d *disk) readBase(number int64, into *block) error {
	_, err := d.base.ReadAt(into[:], number*blockSize)
	return err
}

func (d *disk) readSettled(number int64, into *block) error {
	if b := d.settled[number]; b != nil {
		*into = *b
		return nil
	}
	return d.readBase(number, into)
}

// readCut reads the disk as it was at the cut.
func (d *disk) readCut(dest []byte, offset int64) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var b block
	for len(dest) > 0 {
		number, within := offset/blockSize, offset%blockSize
		from := d.cut[number]
		if from == nil {
			from = &b
			if err := d.readSettled(number, from); err != nil {
				return err
			}
		}
		n := copy(dest, from[within:])
		dest, offset = dest[n:], offset+int64(n)
	}
	return nil
}

// writeCut writes to the disk of the cut.
func (d *disk) writeCut(data []byte, offset int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return layer{d.cut, d.readSettled}.write(data, offset, whole)
}

// cutAt makes the disk of a cut. data reads what an entry has written.
func (d *disk) cutAt(entries []Entry, loss Loss, seed uint64, data func(Entry) ([]byte, error)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	flushed := 0
	for i, e := range entries {
		if e.Disk == d.number && e.Kind == Flush {
			flushed = i + 1
		}
	}
	if flushed < d.upTo {
		d.settled, d.upTo = map[int64]*block{}, 0
	}
	play := func(l layer, e Entry, keep func(int64) bool) error {
		if e.Disk != d.number || e.Kind == Flush {
			return nil
		}
		written, err := data(e)
		if err != nil {
			return err
		}
		return l.write(written, e.Offset, keep)
	}
	for _, e := range entries[d.upTo:flushed] {
		if err := play(layer{d.settled, d.readBase}, e, whole); err != nil {
			return err
		}
	}
	d.upTo, d.cut = flushed, map[int64]*block{}
	rng := rand.New(rand.NewPCG(seed, uint64(d.number)))
	for _, e := range entries[flushed:] {
		keep := whole
		switch loss {
		case Kept:
		case Lost:
			return nil
		case Torn:
			keep = survives(rng, e.Length/blockSize+2)
		default:
			return fmt.Errorf("unknown loss %q", loss)
		}
		if err := play(layer{d.cut, d.readSettled}, e, keep); err != nil {
			return err
		}
	}
	return nil
}
