// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// releaseBytes is how much of a Reserve is released at a time. On a full disk any process may take
// the released space.
const releaseBytes = 1 << 20

// Reserve is a file that keeps space free for small files in its directory and below. If a guest's
// overlay has filled the disk, operations that help the guest must write records.
type Reserve struct {
	path  string
	bytes int64
	mu    sync.Mutex
}

var (
	reservesMu sync.Mutex
	reserves   []*Reserve
)

// NewReserve registers a reserve at path. It takes no space before Fill.
func NewReserve(path string, bytes int64) *Reserve {
	r := &Reserve{path: path, bytes: bytes}
	reservesMu.Lock()
	defer reservesMu.Unlock()
	reserves = append(reserves, r)
	return r
}

// Close unregisters the reserve. Its file stays.
func (r *Reserve) Close() {
	reservesMu.Lock()
	defer reservesMu.Unlock()
	for i := range reserves {
		if reserves[i] == r {
			reserves = append(reserves[:i], reserves[i+1:]...)
			return
		}
	}
}

// Fill allocates the missing part of the reserve, if the filesystem then still has the reserve's
// full size free. It returns the present size of the reserve in bytes.
func (r *Reserve) Fill() (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open the reserve: %w", err)
	}
	defer func() { _ = f.Close() }() // opened only for its size
	st, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("look at the reserve: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return st.Size(), fmt.Errorf("look at the filesystem of the reserve: %w", err)
	}
	free := int64(fs.Bavail) * fs.Bsize
	if st.Size() >= r.bytes || free < r.bytes-st.Size()+r.bytes {
		return st.Size(), nil
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, r.bytes); err != nil {
		return st.Size(), fmt.Errorf("fill the reserve %s: %w", r.path, err)
	}
	return r.bytes, nil
}

func (r *Reserve) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	st, err := os.Stat(r.path)
	return err == nil && st.Size() > 0 && os.Truncate(r.path, max(0, st.Size()-releaseBytes)) == nil
}

// UseReserve calls write, which writes to path. While isFull reports that the disk is full, and a
// Reserve for path can release space, UseReserve releases some and calls write again.
func UseReserve(path string, isFull func(error) bool, write func() error) error {
	for {
		if err := write(); err == nil || !isFull(err) || !makeRoom(path) {
			return err
		}
	}
}

func makeRoom(path string) bool {
	reservesMu.Lock()
	var found *Reserve
	for _, r := range reserves {
		if rel, err := filepath.Rel(filepath.Dir(r.path), path); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			found = r
		}
	}
	reservesMu.Unlock()
	return found != nil && found.release()
}

// IsFull reports whether an error of the kernel means that the disk or a quota is full.
func IsFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
