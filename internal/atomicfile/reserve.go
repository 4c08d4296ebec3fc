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

// releaseBytes are given back at a time: what is free on a full disk goes to whoever
// asks for it next, so the rest is kept for later.
const releaseBytes = 1 << 20

// Reserve is room on a filesystem that is kept in a file, for the small files in its
// directory and below when the disk is full: a guest that has filled the disk with
// its overlay can only be helped by operations that write a few records.
type Reserve struct {
	path  string
	bytes int64
	mu    sync.Mutex
}

var (
	reservesMu sync.Mutex
	reserves   []*Reserve
)

// NewReserve keeps room for the files below the directory of path, in a file at path.
// It takes no room before Fill.
func NewReserve(path string, bytes int64) *Reserve {
	r := &Reserve{path: path, bytes: bytes}
	reservesMu.Lock()
	defer reservesMu.Unlock()
	reserves = append(reserves, r)
	return r
}

// Close ends that the reserve is used. Its file stays.
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

// Fill takes what is missing of the reserve, if so much is free that as much is left,
// and returns how much of it there is.
func (r *Reserve) Fill() (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open the reserve: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing of its content is needed
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

// release gives some of the reserve back to the filesystem, and reports whether there was
// any left.
func (r *Reserve) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	st, err := os.Stat(r.path)
	return err == nil && st.Size() > 0 && os.Truncate(r.path, max(0, st.Size()-releaseBytes)) == nil
}

// UseReserve calls write, which writes to path, and calls it again while isFull says of its
// error that the disk is full and a Reserve of the directory of path has room to give.
func UseReserve(path string, isFull func(error) bool, write func() error) error {
	for {
		if err := write(); err == nil || !isFull(err) || !makeRoom(path) {
			return err
		}
	}
}

// makeRoom reports whether there is more room for path than before.
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

// IsFull reports whether an error of the kernel is that there is no room.
func IsFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
