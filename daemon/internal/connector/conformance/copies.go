// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/connector"
)

func (k *kit) copies(src, dst string) {
	size, err := k.sameSize(src, dst)
	if !k.check("there are two volumes of one size to copy between", func() error { return err }) {
		return
	}
	g := k.pool.GranularityBytes
	part := min(size, max(g, size/2/g*g))
	ask := func(opID string, off, n int64) connector.Request {
		return connector.Request{
			Verb: connector.VerbCopy, OpID: opID, Volume: dst, Identity: k.made[dst], OffsetBytes: off, LengthBytes: n,
			Source: &connector.Source{Volume: src, Identity: k.made[src], SizeBytes: size},
		}
	}
	refuses := func(code string, change func(*connector.Request)) func() error {
		return func() error {
			in := ask(opOne, 0, part)
			change(&in)
			_, err := k.ask(in)
			return errors.Join(refused(err, code), k.isFilled(dst, size, 2))
		}
	}
	if !k.check("two volumes can be written", func() error { return errors.Join(k.fill(src, size, 1), k.fill(dst, size, 2)) }) {
		return
	}
	k.check("a copy to another device is refused", refuses(connector.CodeChanged, func(in *connector.Request) { in.Identity = "none" }))
	k.check("a copy from another device is refused", refuses(connector.CodeChanged, func(in *connector.Request) { in.Source.Identity = "none" }))
	k.check("a copy of more than there is is refused", refuses(connector.CodeInvalid, func(in *connector.Request) { in.Source.SizeBytes, in.LengthBytes = size+g, size+g }))
	if !k.check("copy copies a range of a volume that is open, and changes nothing behind it", func() error {
		if err := errors.Join(k.fill(src, size, 3), k.fill(dst, size, 4)); err != nil {
			return err
		}
		return k.copiesRange(ask(opOne, 0, part), size, 3, 4)
	}) {
		return
	}
	k.check("a copy that is asked for again gives the same", func() error { return k.copiesRange(ask(opOne, 0, part), size, 3, 4) })
	k.check("copy copies all of it, range by range", func() error { return k.copiesAll(ask, src, dst, size) })
	for n, after := range k.Interrupted {
		k.check(fmt.Sprintf("a copy that is ended after %s can be asked for again, and nothing is written when that has answered", after), func() error {
			seed := byte(5 + 2*n)
			if err := k.fill(src, size, seed); err != nil {
				return err
			}
			k.interrupt(after, ask(opOne, 0, size))
			if err := k.copiesAll(ask, src, dst, size); err != nil {
				return err
			}
			return k.staysFilled(dst, size, seed+1)
		})
	}
}

func (k *kit) sameSize(a, b string) (int64, error) {
	var size int64
	for _, name := range []string{a, b} {
		d, err := k.Look(k.pool.Directory + "/" + name)
		if err != nil {
			return 0, err
		}
		if size != 0 && size != d.SizeBytes {
			return 0, fmt.Errorf("they have %d and %d bytes", size, d.SizeBytes)
		}
		size = d.SizeBytes
	}
	if a == b {
		return 0, errors.New("only one was named")
	}
	return size, nil
}

func (k *kit) copiesRange(in connector.Request, size int64, srcSeed, dstSeed byte) (err error) {
	for _, name := range []string{in.Source.Volume, in.Volume} {
		d, err := k.Open(k.pool.Directory + "/" + name)
		if err != nil {
			return err
		}
		defer func() { _ = d.Close() }()
	}
	out, err := k.ask(in)
	if err != nil {
		return err
	}
	return errors.Join(k.isFilledFrom(in.Volume, 0, out.CopiedToBytes, srcSeed), k.isFilledFrom(in.Volume, out.CopiedToBytes, size, dstSeed))
}

func (k *kit) copiesAll(ask func(opID string, off, n int64) connector.Request, src, dst string, size int64) error {
	for at := int64(0); at < size; {
		out, err := k.ask(ask(opTwo, at, size-at))
		if err != nil {
			return err
		}
		at = out.CopiedToBytes
	}
	return k.sameContent(src, dst, size)
}

func (k *kit) staysFilled(name string, size int64, seed byte) error {
	if err := k.fill(name, size, seed); err != nil {
		return err
	}
	if _, err := k.ask(connector.Request{Verb: connector.VerbInspect, Volume: name}); err != nil {
		return err
	}
	select { // no certain check: a write may come even later
	case <-time.After(k.Late):
	case <-k.ctx.Done():
	}
	return k.isFilled(name, size, seed)
}

func chunkOf(off int64, n int, seed byte) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%08x%07d%c", off, int(seed), '.'), n/16+1)[:n]
}

const fillBytes = 1 << 20

func (k *kit) fill(name string, size int64, seed byte) (err error) {
	d, err := k.Open(k.pool.Directory + "/" + name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Sync(), d.Close()) }()
	for off := int64(0); off < size; off += fillBytes {
		if _, err := d.WriteAt(chunkOf(off, int(min(fillBytes, size-off)), seed), off); err != nil {
			return err
		}
	}
	return nil
}

func (k *kit) isFilled(name string, size int64, seed byte) error {
	return k.isFilledFrom(name, 0, size, seed)
}

func (k *kit) isFilledFrom(name string, from, to int64, seed byte) error {
	return k.reads(name, from, to, func(off int64, n int) ([]byte, error) {
		start := off / fillBytes * fillBytes
		whole := chunkOf(start, fillBytes, seed)
		return whole[off-start : min(off-start+int64(n), fillBytes)], nil
	})
}

func (k *kit) sameContent(src, dst string, size int64) (err error) {
	d, err := k.Open(k.pool.Directory + "/" + src)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return k.reads(dst, 0, size, func(off int64, n int) ([]byte, error) {
		want := make([]byte, n)
		_, err := d.ReadAt(want, off)
		return want, err
	})
}

func (k *kit) reads(name string, from, to int64, want func(off int64, n int) ([]byte, error)) (err error) {
	d, err := k.Open(k.pool.Directory + "/" + name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for off := from; off < to; {
		expected, err := want(off, int(min(fillBytes-off%fillBytes, to-off)))
		if err != nil {
			return err
		}
		found := make([]byte, len(expected))
		if _, err := d.ReadAt(found, off); err != nil {
			return err
		}
		if !bytes.Equal(found, expected) {
			return fmt.Errorf("%s has something else between %d and %d", name, off, off+int64(len(found)))
		}
		off += int64(len(found))
	}
	return nil
}
