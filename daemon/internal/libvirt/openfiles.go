// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// procDir is a variable for the tests.
var procDir = "/proc"

// OpenFiles lists what the domain's process has open on the images at these paths. Of files and
// devices it asks the kernel and not libvirt: the result is the proof against which libvirt's answers are
// checked, and it works while libvirtd is away. It looks for the process once, which takes long
// where there are many, and guests stand still meanwhile. Of what is at an address it asks the process.
func (c *Conn) OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error) {
	files, err := c.openFiles(ctx, strings.ToLower(id), paths)
	if err != nil {
		return nil, fmt.Errorf("list what domain %s has open on %s: %w", id, strings.Join(paths, ", "), err)
	}
	return files, nil
}

func (c *Conn) openFiles(ctx context.Context, id string, paths []string) ([]hv.OpenFile, error) {
	var addresses, local []string
	var wanted []identity
	for _, path := range paths {
		if api.IsNetwork(path) {
			addresses = append(addresses, path)
			continue
		}
		is, err := identify(path)
		if err != nil {
			return nil, err
		}
		local, wanted = append(local, path), append(wanted, is)
	}
	processes, err := findProcesses(id)
	if err != nil {
		return nil, err
	}
	// Of all that claim to be the domain: a claim can be false, and what is open is
	// open. A false one has no way to hide what the true one has.
	var found []hv.OpenFile
	pid := 0
	for _, p := range processes {
		files, err := p.openFiles(local, wanted)
		if errors.Is(err, os.ErrNotExist) {
			continue // ended since
		}
		if err != nil {
			return nil, err
		}
		found, pid = append(found, files...), p.pid()
	}
	if err := c.oneIsTrue(ctx, id, processes); err != nil || len(addresses) == 0 {
		return found, err
	}
	nodes, err := c.openNodes(ctx, id, pid, addresses)
	return append(found, nodes...), err
}

// oneIsTrue returns nil if one of the processes that claim to be a domain is it,
// ErrNotActive if the domain is off, and ErrNoProcess or ErrUnavailable if its
// process is not among them or nobody can tell.
func (c *Conn) oneIsTrue(ctx context.Context, id string, processes []process) error {
	as := func(uid uint32) bool {
		return slices.ContainsFunc(processes, func(p process) bool { return p.uid == uid })
	}
	if user := c.qemuDefault.Load(); as(0) || user != nil && as(user.UID) {
		return nil
	}
	dom, err := c.Domain(ctx, id)
	switch {
	case errors.Is(err, hv.ErrNotFound), err == nil && !dom.State.Active():
		return hv.ErrNotActive
	case err != nil:
		return err
	}
	user, err := c.qemuUser(ctx, id)
	if err != nil {
		return fmt.Errorf("%w: %w", hv.ErrNoProcess, err)
	}
	if !as(user.UID) {
		return fmt.Errorf("%w: %d others name its UUID", hv.ErrNoProcess, len(processes))
	}
	return nil
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

func openFile(dir, fd string) (hv.OpenFile, error) {
	n, err := strconv.Atoi(fd)
	if err != nil {
		return hv.OpenFile{}, fmt.Errorf("read descriptor number: %w", err)
	}
	info, err := os.ReadFile(filepath.Join(dir, "fdinfo", fd))
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

// process is a QEMU process that claims to be a domain.
type process struct {
	dir string // in /proc
	uid uint32
}

// pid is the number of the process.
func (p process) pid() int {
	n, _ := strconv.Atoi(filepath.Base(p.dir)) // listProcesses has only numbers
	return n
}

// findProcesses finds the QEMU processes with the UUID of a domain in their command
// line, which is each one's own claim: any user may start a QEMU with it. libvirt's pid
// files are not used: libvirtd may live in another mount namespace.
func findProcesses(id string) ([]process, error) {
	pids, err := listProcesses()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	needle := []byte("\x00-uuid\x00" + id + "\x00")
	var found []process
	for _, pid := range pids {
		dir := filepath.Join(procDir, pid)
		// Before its arguments: a link is read faster, and a host has many other processes.
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil || !strings.HasPrefix(filepath.Base(exe), "qemu") {
			continue // gone, or none of QEMU
		}
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !bytes.Contains(args, needle) {
			continue
		}
		uid, err := uidOf(dir)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, process{dir, uid})
	}
	return found, nil
}

// listProcesses returns the numbers of all processes, in no order.
func listProcesses() ([]string, error) {
	dir, err := os.Open(procDir)
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool { return name[0] < '0' || name[0] > '9' }), nil
}

// uidOf reads the effective user of a process. The owner of its directory is root's
// where the process has changed its user.
func uidOf(dir string) (uint32, error) {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			if fields := strings.Fields(ids); len(fields) > 1 {
				uid, err := strconv.ParseUint(fields[1], 10, 32)
				return uint32(uid), err
			}
		}
	}
	return 0, fmt.Errorf("no user in %s/status", dir)
}

// openFiles lists the descriptors of the process on the images at these paths, which have
// these identities.
func (p process) openFiles(paths []string, wanted []identity) ([]hv.OpenFile, error) {
	fds, err := os.ReadDir(filepath.Join(p.dir, "fd"))
	if err != nil {
		return nil, err
	}
	var found []hv.OpenFile
	for _, entry := range fds {
		// Through /proc, stat reaches the open file itself, also one that has
		// no name any more or lives in another mount namespace.
		got, err := identify(filepath.Join(p.dir, "fd", entry.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // closed since
		}
		if err != nil {
			return nil, err
		}
		for i, want := range wanted {
			if got != want {
				continue
			}
			file, err := openFile(p.dir, entry.Name())
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			file.Path, file.PID = paths[i], p.pid()
			found = append(found, file)
		}
	}
	return found, nil
}
