// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// Needs are the requirements of a new image on its filesystem.
type Needs struct {
	// FileBytes is the maximum size of the file.
	FileBytes int64
	// Named is true if this program makes the file, and links it under its name when it is
	// complete.
	Named bool
	// Direct is true if QEMU opens the image past the page cache.
	Direct bool
	// Kept is true if the file must survive a reboot.
	Kept bool
}

// LimitError lists an image's requirements that the filesystem of a directory does not meet.
type LimitError struct {
	Dir string
	// Kind is the kernel's name of the filesystem's type.
	Kind string
	// Lacks has predicates; the subject of each is the filesystem.
	Lacks []string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the filesystem of %s (%s) %s; use a directory of another filesystem", e.Dir, e.Kind, strings.Join(e.Lacks, ", and "))
}

func (e *LimitError) refusal(what string) *api.Error {
	return api.Errorf(api.CodeInvalidArgument, "cannot %s: %v", what, e).With("path", e.Dir).With("filesystem", e.Kind)
}

// check tests with f, a file in dir, whether the filesystem meets the needs. The file can be
// opened again at path. It returns a *LimitError for unsupported operations.
func (n Needs) check(f *os.File, path, dir string) error {
	var lacks []string
	for _, need := range []struct {
		needed bool
		try    func() (can bool, err error)
		words  string
	}{
		{n.Named, func() (bool, error) { return hasLinks(f, dir) }, "has no hard links, by which a new image gets its name"},
		{true, func() (bool, error) { return hasLocks(f) }, "has no locks of open files (F_OFD_SETLK), which keep others off an image"},
		{n.Direct, func() (bool, error) { return hasDirect(path) }, "cannot be used past the page cache, as cache='none' and cache='directsync' demand"},
		{n.Kept, func() (bool, error) { return outlives(dir) }, "is in memory, so that its files are gone after the next reboot"},
		{n.FileBytes > 0, func() (bool, error) { return holds(f, n.FileBytes) }, holdsNone(n.FileBytes)},
	} {
		if !need.needed {
			continue
		}
		can, err := need.try()
		if err != nil {
			return fmt.Errorf("look what the filesystem of %s can do: %w", dir, err)
		}
		if !can {
			lacks = append(lacks, need.words)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return limitOf(dir, lacks...)
}

func limitOf(dir string, lacks ...string) *LimitError {
	limit := &LimitError{Dir: dir, Kind: "of a kind that is not known", Lacks: lacks}
	if is, err := location.FilesystemOf(dir); err == nil {
		limit.Kind = is.Kind
	}
	return limit
}

// hasLinks reports whether a file can be linked in a directory. If this program dies before the
// link is removed, an empty file remains.
func hasLinks(f *os.File, dir string) (bool, error) {
	name := filepath.Join(dir, qemuimg.TemporaryName())
	err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
	switch {
	case refused(err):
		return false, nil
	case err != nil:
		return false, &os.LinkError{Op: "link", Old: f.Name(), New: name, Err: err}
	}
	return true, os.Remove(name)
}

func hasLocks(f *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if refused(err) || errors.Is(err, unix.ENOLCK) {
		return false, nil
	}
	return err == nil, err
}

func hasDirect(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

func outlives(dir string) (bool, error) {
	inMemory, err := location.InMemory(dir)
	return !inMemory, err
}

// CheckFileBytes returns a *LimitError if the filesystem of a file cannot hold a file of this
// size. It does not find the limit of an NFS or other server.
func (s Storage) CheckFileBytes(path string, bytes int64) error {
	f, err := s.Files.Open(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	can, err := mayReach(f, bytes)
	if err != nil || can {
		return err
	}
	return limitOf(filepath.Dir(path), holdsNone(bytes))
}

func holdsNone(bytes int64) string {
	return "holds no file of " + humanize.ExactBytes(bytes) + ", which the image may need"
}

func mayReach(f *os.File, bytes int64) (bool, error) {
	_, err := f.Seek(bytes, io.SeekStart)
	if errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	return err == nil, err
}

// holds reports whether a file can become this large. If unwritten parts take no space, it makes
// the file this large, which also finds the limit of an NFS server.
func holds(f *os.File, bytes int64) (bool, error) {
	if can, err := mayReach(f, bytes); err != nil || !can {
		return false, err
	}
	if sparse, err := hasHoles(f); err != nil || !sparse {
		return err == nil, err
	}
	err := f.Truncate(bytes)
	if errors.Is(err, unix.EFBIG) || errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	return err == nil, err
}

// hasHoles reports whether unwritten parts of a file take no space. It makes the file larger.
func hasHoles(f *os.File) (bool, error) {
	const trialBytes = 1 << 20
	if err := f.Truncate(trialBytes); err != nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, err
	}
	return st.Blocks*512 < trialBytes, nil
}
