// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/shell"
)

// Directory is an open directory. Another user may change its entries at any time: methods use the
// open directory, not its path, and follow no link in it.
type Directory struct {
	file *os.File
	path string
}

// temporary is a part of the names of Write's temporary files, before random text.
const temporary = ".tmp-"

const maxFollowed = 40

// OpenDirectory opens the directory at path. It refuses symbolic links that a user other than root
// and the caller could have made.
func OpenDirectory(path string) (*Directory, error) { return openDirectory(path, nil) }

// MakeDirectory is OpenDirectory, but makes missing directories of path with this mode.
func MakeDirectory(path string, mode os.FileMode) (*Directory, error) {
	return openDirectory(path, func(in int, name string) error {
		if err := unix.Mkdirat(in, name, uint32(mode.Perm())); !errors.Is(err, unix.EEXIST) {
			return err
		}
		return nil
	})
}

func openDirectory(path string, mkdir func(in int, name string) error) (*Directory, error) {
	failed := func(err error) error { return &fs.PathError{Op: "open directory", Path: path, Err: err} }
	at, parts, err := begin(path)
	if err != nil {
		return nil, failed(err)
	}
	for followed := 0; len(parts) > 0; {
		name := parts[0]
		parts = parts[1:]
		next, target, err := enter(at, name, mkdir)
		if err == nil && target != "" {
			if followed++; followed > maxFollowed {
				err = unix.ELOOP
			} else if linked := split(target); filepath.IsAbs(target) {
				parts = append(linked, parts...)
				next, _, err = begin("/")
			} else {
				parts = append(linked, parts...)
				continue
			}
		}
		_ = unix.Close(at) // opened with O_PATH only
		if err != nil {
			return nil, failed(err)
		}
		at = next
	}
	defer unix.Close(at) //nolint:errcheck // it was only looked at
	fd, err := unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failed(err)
	}
	return &Directory{file: os.NewFile(uintptr(fd), path), path: path}, nil
}

func begin(path string) (fd int, parts []string, err error) {
	from := "."
	if filepath.IsAbs(path) {
		from = "/"
	}
	fd, err = unix.Open(from, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return fd, split(path), err
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// enter opens the directory with this name in the directory parent. If it is missing, and mkdir is
// not nil, enter first calls mkdir. For a symbolic link that may be followed, it returns the
// target.
func enter(parent int, name string, mkdir func(parent int, name string) error) (fd int, target string, err error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err = unix.Openat(parent, name, flags, 0)
	if errors.Is(err, unix.ENOENT) && mkdir != nil {
		if err = mkdir(parent, name); err == nil {
			fd, err = unix.Openat(parent, name, flags, 0)
		}
	}
	if err != nil {
		return -1, "", err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch kind := st.Mode & unix.S_IFMT; {
	case err != nil:
	case kind == unix.S_IFDIR:
		return fd, "", nil
	case kind != unix.S_IFLNK:
		err = unix.ENOTDIR
	default:
		target, err = follow(parent, fd, name, st.Uid)
	}
	return -1, target, errors.Join(err, unix.Close(fd))
}

// follow returns the target of a symbolic link if only root and the caller can have made the link.
func follow(in, link int, name string, owner uint32) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(in, &st); err != nil {
		return "", err
	}
	others := st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0
	if others || !isTrusted(st.Uid) || !isTrusted(owner) {
		return "", fmt.Errorf("%s is a symbolic link, which user %d could change: name the directory to which it leads", name, st.Uid)
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link, "", target)
	if err == nil && n == 0 {
		err = unix.ENOENT
	}
	return string(target[:max(n, 0)]), err
}

func isTrusted(uid uint32) bool { return uid == 0 || int64(uid) == int64(os.Geteuid()) }

// Close closes the directory.
func (d *Directory) Close() error { return d.file.Close() }

// Lock waits for the lock of the directory. Close releases it.
func (d *Directory) Lock() error {
	if err := unix.Flock(int(d.file.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", d.path, err)
	}
	return nil
}

// Owner returns the user and group ids of the directory.
func (d *Directory) Owner() (uid, gid int, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.file.Fd()), &st); err != nil {
		return 0, 0, fmt.Errorf("look at %s: %w", d.path, err)
	}
	return int(st.Uid), int(st.Gid), nil
}

// Path returns the path of a file in the directory, for messages.
func (d *Directory) Path(name string) string { return filepath.Join(d.path, name) }

// Exists reports whether the directory has an entry with this name, of any kind.
func (d *Directory) Exists(name string) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(d.file.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", d.Path(name), err)
	}
	return true, nil
}

// Read returns the content of a regular file of at most limit bytes, and its owner. If other users
// can make files in the directory, Read refuses a file with several names: it could be their hard
// link to a file that they may not read. The kernel refuses such links only with
// fs.protected_hardlinks.
func (d *Directory) Read(name string, limit int64) (data []byte, owner int, err error) {
	path := d.Path(name)
	fd, err := unix.Openat(int(d.file.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, 0, fmt.Errorf("read %s: it is a link, which is not followed", path)
	}
	if err != nil {
		return nil, 0, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { err = errors.Join(err, f.Close()) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, 0, fmt.Errorf("read %s: it is no regular file", path)
	}
	if st.Nlink != 1 {
		if err := d.checkHardLink(path, uint64(st.Nlink)); err != nil {
			return nil, 0, err
		}
	}
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, 0, err
	}
	if int64(len(data)) > limit {
		return nil, 0, fmt.Errorf("read %s: it has more than %d bytes", path, limit)
	}
	return data, int(st.Uid), nil
}

// checkHardLink refuses a file with several names, if users other than root and the caller can
// write to the directory.
func (d *Directory) checkHardLink(path string, names uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.file.Fd()), &st); err != nil {
		return fmt.Errorf("look at %s: %w", d.path, err)
	}
	if isTrusted(st.Uid) && st.Mode&0o022 == 0 {
		return nil
	}
	return fmt.Errorf("read %s: it has %d names (hard links), and others can make files in its directory, so that it may be a file that they may not read; look at its names (`%s`), and if it is yours, remove the others of them",
		path, names, shell.Line("find", "/", "-samefile", path))
}

// Write is the function Write, for a file in the directory.
func (d *Directory) Write(name string, data []byte, mode os.FileMode) error {
	return d.replace(name, data, mode, func(*os.File) error { return nil })
}

// WriteForOwner is Write, and as root gives the file to the owner of the directory.
func (d *Directory) WriteForOwner(name string, data []byte, mode os.FileMode) error {
	return d.replace(name, data, mode, func(f *os.File) error {
		uid, gid, err := d.Owner()
		if err != nil || os.Geteuid() != 0 {
			return err
		}
		return f.Chown(uid, gid)
	})
}

func (d *Directory) replace(name string, data []byte, mode os.FileMode, give func(*os.File) error) error {
	path := d.Path(name)
	return UseReserve(path, IsFull, func() error {
		if err := d.put(name, data, mode, give); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		return d.sync()
	})
}

func (d *Directory) put(name string, data []byte, mode os.FileMode, give func(*os.File) error) error {
	in := int(d.file.Fd())
	// A leading dot and no suffix: readers of the directory by pattern skip the temporary file of
	// an interrupted Write.
	part := "." + name + temporary + rand.Text()[:10]
	fd, err := unix.Openat(in, part, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), part)
	err = errors.Join(give(f), fill(f, data, mode))
	if err == nil {
		err = unix.Renameat(in, part, in, name)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(in, part, 0))
	}
	return nil
}

func fill(f *os.File, data []byte, mode os.FileMode) error {
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Chmod(mode), f.Sync(), f.Close())
}

func (d *Directory) sync() error {
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", d.path, err)
	}
	return nil
}

// unfinishedFor is longer than any Write takes.
const unfinishedFor = time.Hour

// SweepOld is the function SweepOld, for the directory.
func (d *Directory) SweepOld() error { return d.sweep(time.Now().Add(-unfinishedFor)) }

func (d *Directory) sweep(olderThan time.Time) error {
	entries, err := d.file.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("sweep directory: %w", err)
	}
	for _, e := range entries {
		left, _ := filepath.Match(".*"+temporary+"*", e.Name()) // the pattern is valid
		if !left || !e.Type().IsRegular() || !olderThan.IsZero() && !d.isOlder(e.Name(), olderThan) {
			continue
		}
		if err := unix.Unlinkat(int(d.file.Fd()), e.Name(), 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("sweep directory: remove %s: %w", d.Path(e.Name()), err)
		}
	}
	return nil
}

func (d *Directory) isOlder(name string, than time.Time) bool {
	var st unix.Stat_t
	err := unix.Fstatat(int(d.file.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && time.Unix(st.Mtim.Unix()).Before(than)
}
