// SPDX-License-Identifier: Apache-2.0

// Package openfile opens images by their paths: a regular file or a block device, and nothing
// else. Every image that this program reads, writes or passes to a child is opened here. A path
// does not identify an image: other users can write in the directories of images, on this host or
// on another host with the same filesystem. So an image is first found, which neither waits nor
// affects it, then checked, and then opened by the checked descriptor.
//
// DESIGN.md of package location has the rule for places.
package openfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Places decides whether an image may be used if its path contains a symbolic link, or if it is a
// block device outside of /dev.
type Places interface {
	// CheckFound returns an error if the image at path may not be used. real is the image's path
	// without links, according to the kernel. device is true for a block device.
	CheckFound(path, real string, device bool) error
}

// Files opens images where Places permits. The zero Files refuse symbolic links and block devices
// outside of /dev.
type Files struct {
	Places Places
}

// Anywhere returns Files that open any file or device at a path, wherever links lead. Use it only
// for comparisons.
func Anywhere() Files { return Files{anywhere{}} }

type anywhere struct{}

func (anywhere) CheckFound(string, string, bool) error { return nil }

// Error is the reason why a path is not opened.
type Error struct {
	Path, Reason string
}

func (e *Error) Error() string { return e.Path + ": " + e.Reason }

// Image is an image that was found at a path. It is not yet open for reading or writing, and stays
// the same, whatever is put at the path.
type Image struct {
	// Path is the requested path, and Real the path without links. For a device in /dev, Real is
	// the requested path.
	Path, Real string
	Block      bool

	file *os.File // opened with O_PATH
}

// Open opens the image at path with the flags of open(2). With O_NOFOLLOW the last part of the
// path may not be a link.
func (f Files) Open(path string, flags int) (file *os.File, err error) {
	for range staleTries {
		if file, err = f.open(path, flags); !errors.Is(err, unix.ESTALE) {
			break
		}
	}
	return file, err
}

// staleTries is how often an image is looked up if another NFS client has replaced it: NFS caches
// a name for some seconds, until the image is opened.
const staleTries = 3

func (f Files) open(path string, flags int) (*os.File, error) {
	img, err := f.Find(path, flags&unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer img.Close()
	return img.Open(flags)
}

// Find finds the image at path. flags are 0 or O_NOFOLLOW.
func (f Files) Find(path string, flags int) (*Image, error) {
	file, st, err := find(path, flags)
	if err != nil {
		return nil, err
	}
	img := &Image{Path: path, Real: path, file: file}
	if err := f.check(img, st.Mode&unix.S_IFMT); err != nil {
		img.Close()
		return nil, err
	}
	return img, nil
}

// check refuses anything that is no image, and an image that Places does not permit. It sets the
// fields of img.
func (f Files) check(img *Image, kind uint32) (err error) {
	switch img.Block = kind == unix.S_IFBLK; {
	case !img.Block && kind != unix.S_IFREG:
		return &Error{img.Path, "neither a regular file nor a block device"}
	case MadeByRoot(img.Path):
		if !img.Block {
			return &Error{img.Path, "no block device, and nothing else in /dev can be an image"}
		}
		return nil // only root makes nodes and links there
	}
	if img.Real, err = realPath(img.file); err != nil {
		return err
	}
	if img.Real == img.Path && !img.Block {
		return nil
	}
	return f.places().CheckFound(img.Path, img.Real, img.Block)
}

// OpenDir opens the directory of path, so that the caller can make an image in it.
func (f Files) OpenDir(path string) (*os.File, error) {
	file, st, err := find(filepath.Dir(path), 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, &Error{file.Name(), "no directory"}
	}
	real, err := realPath(file)
	if err != nil {
		return nil, err
	}
	if at := filepath.Join(real, filepath.Base(path)); at != path {
		if err := f.places().CheckFound(path, at, false); err != nil {
			return nil, err
		}
	}
	return reopen(file, unix.O_RDONLY|unix.O_DIRECTORY)
}

func (f Files) places() Places {
	if f.Places == nil {
		return nowhere{}
	}
	return f.Places
}

type nowhere struct{}

func (nowhere) CheckFound(path, real string, device bool) error {
	if path == real && device {
		return &Error{path, "a block device outside of /dev"}
	}
	return &Error{path, "there is a symbolic link in its path, which leads to " + real}
}

// Open opens the found image, with the flags of open(2).
func (i *Image) Open(flags int) (*os.File, error) { return reopen(i.file, flags&^unix.O_NOFOLLOW) }

// Stat returns the image's metadata.
func (i *Image) Stat() (os.FileInfo, error) { return i.file.Stat() }

// Close closes the found image. Files that Open has returned stay open.
func (i *Image) Close() { _ = i.file.Close() }

// Again opens the file or device of f once more, with the flags of open(2), whatever is at its
// path.
func Again(f *os.File, flags int) (*os.File, error) { return reopen(f, flags) }

func find(path string, flags int) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := retried(func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0) })
	if err != nil {
		return nil, st, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, st, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), st, nil
}

func reopen(f *os.File, flags int) (*os.File, error) {
	fd, err := retried(func() (int, error) { return unix.Open(procPath(f), flags|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: f.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func retried(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR { //nolint:errorlint // as the kernel says it
			return n, err
		}
	}
}

func realPath(f *os.File) (string, error) {
	real, err := os.Readlink(procPath(f))
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if st.Nlink == 0 { // it was removed meanwhile
		return "", &os.PathError{Op: "open", Path: f.Name(), Err: fs.ErrNotExist}
	}
	return real, nil
}

func procPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// MadeByRoot reports whether only root makes the nodes and links at a clean path: the path is in
// /dev, and not in /dev/shm.
func MadeByRoot(path string) bool {
	return strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(path, "/dev/shm/")
}
