// SPDX-License-Identifier: Apache-2.0

package nbd

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// Range is a range of bytes.
type Range struct {
	Offset int64
	Bytes  int64
}

const stateDirty = 1

// maxAskBytes is the longest range of a request: the length has 32 bits.
const maxAskBytes = 1 << 30

// DirtyRanges returns the dirty ranges of an export's bitmap, and the size of the export. The
// ranges are in order, and each is as long as possible. socket is the server's Unix socket.
// Without an error the whole export was read.
func DirtyRanges(ctx context.Context, socket, export, bitmap string) (dirty []Range, sizeBytes int64, err error) {
	fail := func(err error) ([]Range, int64, error) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, 0, fmt.Errorf("read bitmap %s of export %s: %w", bitmap, export, err)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	c := newClient(conn)
	if err := c.negotiate(export, "qemu:dirty-bitmap:"+bitmap); err != nil {
		return fail(err)
	}
	for off := int64(0); off < c.sizeBytes; {
		extents, err := c.blockStatus(off, min(maxAskBytes, c.sizeBytes-off))
		if err != nil {
			return fail(err)
		}
		for _, e := range extents {
			n := min(int64(e.bytes), c.sizeBytes-off) // the last extent may exceed the request
			if n <= 0 {
				return fail(errors.New("the server answers with an extent of no length, or past the end"))
			}
			if e.flags&stateDirty != 0 {
				dirty = appendRange(dirty, Range{off, n})
			}
			off += n
		}
	}
	return dirty, c.sizeBytes, c.disconnect()
}

func appendRange(to []Range, r Range) []Range {
	if last := len(to) - 1; last >= 0 && to[last].Offset+to[last].Bytes == r.Offset {
		to[last].Bytes += r.Bytes
		return to
	}
	return append(to, r)
}
