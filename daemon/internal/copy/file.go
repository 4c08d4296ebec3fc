// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/openfile"
)

// fileEnd is a regular file or a block device: one descriptor with O_DIRECT for whole aligned
// blocks, and a buffered one for a shorter tail and for filesystems that refuse O_DIRECT.
type fileEnd struct {
	path     string
	sizeByte int64
	regular  bool
	buffered *os.File
	direct   *os.File // nil if refused

	directOff atomic.Bool // refused after all, at the first transfer
	cached    atomic.Bool // some transfer used the page cache
	zeroing   atomic.Int32
	// thinBlockBytes is the size of blocks that read as zeros after a discard, 0 for none.
	thinBlockBytes atomic.Int64
}

// OpenFile opens a regular file or block device as an End. It follows no links.
func OpenFile(path string, writable bool) (End, error) {
	return openFile(openfile.Files{}, path, writable, unix.O_DIRECT)
}

// openFile is OpenFile with the flag that bypasses the page cache, 0 for none.
func openFile(files openfile.Files, path string, writable bool, directFlag int) (*fileEnd, error) {
	found, err := files.Find(path, 0)
	if err != nil {
		return nil, imageError(err)
	}
	defer found.Close()
	flags := os.O_RDONLY
	if writable {
		flags = os.O_RDWR
	}
	f := &fileEnd{path: path, regular: !found.Block}
	if f.buffered, err = found.Open(flags); err != nil {
		return nil, err
	}
	if f.sizeByte, err = f.buffered.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(err, f.buffered.Close())
	}
	if directFlag == 0 {
		return f, nil
	}
	f.direct, err = found.Open(flags | directFlag)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, errors.Join(err, f.buffered.Close())
	}
	return f, nil
}

func imageError(err error) error {
	if bad := (*openfile.Error)(nil); errors.As(err, &bad) {
		return &ImageError{Path: bad.Path, Reason: bad.Reason}
	}
	return err
}

func (f *fileEnd) Size() int64 { return f.sizeByte }

func (f *fileEnd) Close() error {
	err := f.buffered.Close()
	if f.direct != nil {
		err = errors.Join(err, f.direct.Close())
	}
	return err
}

func (f *fileEnd) ReadAt(p []byte, off int64) (int, error) {
	return f.transfer((*os.File).ReadAt, p, off)
}

func (f *fileEnd) WriteAt(p []byte, off int64) (int, error) {
	return f.transfer((*os.File).WriteAt, p, off)
}

// transfer moves the whole aligned blocks of p directly and the rest through the page cache. The
// two never share a page.
func (f *fileEnd) transfer(move func(*os.File, []byte, int64) (int, error), p []byte, off int64) (int, error) {
	n := 0
	if head := f.directBytes(p, off); head > 0 {
		var err error
		n, err = move(f.direct, p[:head], off)
		switch {
		case errors.Is(err, unix.EINVAL):
			// At the first transfer the filesystem refuses direct access. Later a short transfer
			// has continued off a block border; buffered gets the true error.
			f.directOff.CompareAndSwap(false, n == 0)
		case err != nil || n == len(p):
			return n, err
		}
	}
	f.cached.Store(true)
	m, err := move(f.buffered, p[n:], off+int64(n))
	return n + m, err
}

func (f *fileEnd) directBytes(p []byte, off int64) int {
	if f.direct == nil || f.directOff.Load() || off%alignBytes != 0 ||
		uintptr(unsafe.Pointer(unsafe.SliceData(p)))%alignBytes != 0 {
		return 0
	}
	return len(p) &^ (alignBytes - 1)
}

// Extent asks the filesystem. A block device is all data, as is a file without support for
// extents.
func (f *fileEnd) Extent(off int64) (int64, bool, error) {
	if !f.regular {
		return f.sizeByte, true, nil
	}
	fd := int(f.buffered.Fd())
	data, err := unix.Seek(fd, off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return f.sizeByte, false, nil
	case errors.Is(err, unix.EINVAL) || errors.Is(err, errors.ErrUnsupported):
		return f.sizeByte, true, nil
	case err != nil:
		return 0, false, &ReadError{f.path, off, err}
	case data > off:
		return min(data, f.sizeByte), false, nil
	}
	hole, err := unix.Seek(fd, off, unix.SEEK_HOLE)
	if err != nil {
		return 0, false, &ReadError{f.path, off, err}
	}
	return min(hole, f.sizeByte), true, nil
}

func (f *fileEnd) Flush() error {
	if err := f.buffered.Sync(); err != nil {
		return &FlushError{f.path, err}
	}
	if f.cached.Load() || f.direct == nil {
		// This drops clean pages. A filesystem without a device keeps them: they are its storage.
		_ = unix.Fadvise(int(f.buffered.Fd()), 0, 0, unix.FADV_DONTNEED)
	}
	return nil
}
