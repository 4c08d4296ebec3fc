// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// procDir is a variable for the tests.
var procDir = "/proc"

// OpenFiles lists what the domain's process holds open on the image at path.
// It asks the kernel and not libvirt: this is the proof that libvirt's word is
// checked against, and it works while libvirtd is away.
func (c *Conn) OpenFiles(_ context.Context, id, path string) ([]hv.OpenFile, error) {
	files, err := openFiles(strings.ToLower(id), path)
	if err != nil {
		return nil, fmt.Errorf("list what domain %s has open on %s: %w", id, path, err)
	}
	return files, nil
}

func openFiles(id, path string) ([]hv.OpenFile, error) {
	want, err := identify(path)
	if err != nil {
		return nil, err
	}
	pid, err := findProcess(id)
	if err != nil {
		return nil, err
	}
	fds, err := os.ReadDir(filepath.Join(procDir, pid, "fd"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, hv.ErrNotActive
	}
	if err != nil {
		return nil, err
	}
	var found []hv.OpenFile
	for _, entry := range fds {
		// Through /proc, stat reaches the open file itself, also one that has
		// no name any more or lives in another mount namespace.
		got, err := identify(filepath.Join(procDir, pid, "fd", entry.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // closed since
		}
		if err != nil {
			return nil, err
		}
		if got != want {
			continue
		}
		file, err := openFile(pid, entry.Name())
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, file)
	}
	return found, nil
}

// identity tells images apart whatever their paths: a file by file system and
// inode, a block device by its number, since a process may use a device node
// of its own.
type identity struct {
	block bool
	dev   uint64
	ino   uint64
}

func identify(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return identity{block: true, dev: st.Rdev}, nil
	}
	return identity{dev: st.Dev, ino: st.Ino}, nil
}

func openFile(pid, fd string) (hv.OpenFile, error) {
	n, err := strconv.Atoi(fd)
	if err != nil {
		return hv.OpenFile{}, fmt.Errorf("read descriptor number: %w", err)
	}
	info, err := os.ReadFile(filepath.Join(procDir, pid, "fdinfo", fd))
	if err != nil {
		return hv.OpenFile{}, err
	}
	for line := range strings.Lines(string(info)) {
		octal, ok := strings.CutPrefix(line, "flags:")
		if !ok {
			continue
		}
		flags, err := strconv.ParseUint(strings.TrimSpace(octal), 8, 64)
		if err != nil {
			return hv.OpenFile{}, fmt.Errorf("read descriptor flags: %w", err)
		}
		return hv.OpenFile{FD: n, Writable: flags&unix.O_ACCMODE != unix.O_RDONLY}, nil
	}
	return hv.OpenFile{}, fmt.Errorf("no flags in fdinfo of descriptor %s", fd)
}

// findProcess finds the QEMU process of a domain by the UUID in its command
// line. libvirt's pid files are not used: libvirtd may live in another mount
// namespace.
func findProcess(id string) (string, error) {
	cmdlines, err := filepath.Glob(filepath.Join(procDir, "[0-9]*", "cmdline"))
	if err != nil {
		return "", fmt.Errorf("list processes: %w", err)
	}
	needle := []byte("\x00-uuid\x00" + id + "\x00")
	for _, cmdline := range cmdlines {
		args, err := os.ReadFile(cmdline)
		if err != nil || !bytes.Contains(args, needle) {
			continue // gone, or not ours
		}
		// The command line is the process's own claim; its program is not.
		exe, err := os.Readlink(filepath.Join(filepath.Dir(cmdline), "exe"))
		if err != nil || !strings.HasPrefix(filepath.Base(exe), "qemu") {
			continue
		}
		return filepath.Base(filepath.Dir(cmdline)), nil
	}
	return "", hv.ErrNotActive
}
