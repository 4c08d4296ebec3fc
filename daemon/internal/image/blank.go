// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
)

// blankLookBytes bounds the data that Blank reads, for example in a file filled with zeros.
const blankLookBytes = 1 << 30

// Blank reports whether an image file has no data: a raw file has only holes and zeros in its
// volume's bytes, a qcow2 file has no clusters. A file with too much data to read counts as not
// blank.
func (s Storage) Blank(ctx context.Context, l api.Location) (bool, error) {
	if l.Format == api.FormatQcow2 {
		blank, err := qemuimg.Empty(s.host().qcow2At(l.Path))
		if err != nil {
			return false, badImage(l.Path, l.Format, err)
		}
		return blank, nil
	}
	f, err := s.Files.Open(l.Path, os.O_RDONLY)
	if err != nil {
		return false, noImage(err)
	}
	blank, err := onlyZeros(ctx, f, l.SizeBytes, blankLookBytes)
	return blank, errors.Join(err, f.Close())
}

func onlyZeros(ctx context.Context, f *os.File, sizeBytes, most int64) (bool, error) {
	buf, zeros := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < sizeBytes; {
		if err := ctx.Err(); err != nil {
			return false, err //nolint:wrapcheck // the caller's own
		}
		data, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO): // the rest is a hole
			return true, nil
		case err == nil && data >= sizeBytes:
			return true, nil
		case err == nil:
			off = data
		}
		// If the filesystem does not report holes, everything is read.
		n, err := f.ReadAt(buf[:min(int64(len(buf)), sizeBytes-off)], off)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("read %s: %w", f.Name(), err)
		}
		if most -= int64(n); most < 0 || !bytes.Equal(buf[:n], zeros[:n]) {
			return false, nil
		}
		if n == 0 {
			return true, nil // it became shorter
		}
		off += int64(n)
	}
	return true, nil
}
