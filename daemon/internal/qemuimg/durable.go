// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const fileMode = 0o600

// NewFile describes how a file is made, with functions that are called before the file gets its
// path.
type NewFile struct {
	// Temporary is the name of the unfinished file, in its final directory, on a filesystem
	// without unnamed files; empty for a random name. No other file may use that name.
	Temporary string
	// Empty is called when the file has no bytes yet. Optional.
	Empty func(file *os.File)
	// Filled is called when the file is complete and not yet durable, for changes that must be
	// durable with it. An error ends the creation. Optional.
	Filled func(file *os.File) error
	// Whole is called when the file is complete and durable, and before it gets its path. An error
	// ends the creation. Optional.
	Whole func(file *os.File) error
	// Passphrase encrypts an overlay over an encrypted image.
	Passphrase []byte
}

// TemporaryName returns a unique name for NewFile.Temporary.
func TemporaryName() string { return ".volferry-" + rand.Text() }

// createWhole makes the file of an image appear complete and durable, or not at all. fill gets an
// empty file that is unnamed, or has the temporary name, and must not open it by name: another
// file may have the name by then. It returns fs.ErrExist if the path exists. A crash leaves at
// most the temporary file.
func createWhole(image Image, about NewFile, fill func(f *os.File) error) error {
	dir, err := image.Files.OpenDir(image.Path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	f, named, err := newFile(dir, about.Temporary)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if about.Empty != nil {
		about.Empty(f)
	}
	err = fill(f)
	if err == nil && about.Filled != nil {
		err = about.Filled(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil && about.Whole != nil {
		err = about.Whole(f)
	}
	if err == nil {
		err = nameFile(dir, f, image.Path)
	}
	if named {
		err = errors.Join(err, unix.Unlinkat(int(dir.Fd()), filepath.Base(f.Name()), 0))
	}
	if err != nil {
		return err
	}
	return dir.Sync()
}

var openNameless = func(dir int) (int, error) {
	return unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, fileMode)
}

// newFile makes an empty file in a directory: unnamed, or with a temporary name if the filesystem
// lacks unnamed files (NFS).
func newFile(dir *os.File, temporary string) (f *os.File, named bool, err error) {
	fd, err := openNameless(int(dir.Fd()))
	if err == nil {
		return os.NewFile(uintptr(fd), dir.Name()), false, nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EINVAL) {
		return nil, false, &os.PathError{Op: "create a file in", Path: dir.Name(), Err: err}
	}
	if temporary == "" {
		temporary = TemporaryName()
	}
	path := filepath.Join(dir.Name(), temporary)
	fd, err = unix.Openat(int(dir.Fd()), temporary, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_RDWR|unix.O_CLOEXEC, fileMode)
	if err != nil {
		return nil, false, &os.PathError{Op: "create", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), true, nil
}

// nameFile links the open file at its path, and never replaces another file.
func nameFile(dir, f *os.File, path string) error {
	fd := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	err := unix.Linkat(unix.AT_FDCWD, fd, int(dir.Fd()), filepath.Base(path), unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "link", Old: f.Name(), New: path, Err: err}
	}
	return nil
}
