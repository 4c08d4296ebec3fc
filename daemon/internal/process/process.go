// SPDX-License-Identifier: Apache-2.0

// Package process reads the processes of guests and of libvirt from the kernel. It does not ask
// libvirt: its results check libvirt's answers.
package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is the directory of processes, /proc except in tests.
type Dir string

// Claims finds the QEMU processes with a domain's UUID in their command line. That is only a
// claim: any user may start a QEMU with that UUID. It does not use libvirt's PID files, because
// libvirtd may run in another mount namespace. As a walk over many processes takes long, the same
// walk also reads which of the images these processes have open.
//
// The list has at most claimsOfUser claims of each user in full; the number of these claims and
// their files is at most listed. Of the other claims the list has only the files that no earlier
// claim has open in the same mode (for reading or for writing), and omits claims without such a
// file.
func (d Dir) Claims(_ context.Context, id string, images []Image) ([]Claim, error) {
	pids, err := d.list()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	needle := []byte("\x00-uuid\x00" + id + "\x00")
	var found []Claim
	for _, pid := range pids {
		dir := d.of(pid)
		// Reading a link is faster than reading arguments, and a host has many other processes.
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil || !strings.HasPrefix(filepath.Base(exe), "qemu") {
			continue // gone, or not QEMU
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
		found = append(found, Claim{PID: pid, UID: uid})
	}
	slices.SortFunc(found, byUser)
	looked := descriptors{left: maxDescriptors, of: map[uint32]int{}}
	for i := range found {
		if err := found[i].readFiles(d.of(found[i].PID), images, &looked); err != nil {
			return nil, err
		}
	}
	return fewer(found), nil
}

func (d Dir) of(pid int) string { return filepath.Join(string(d), strconv.Itoa(pid)) }

func (d Dir) list() ([]int, error) {
	dir, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// uidOf returns the effective user of a process. The owner of its directory in /proc may be root
// if the process has changed its user.
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

func (c *Claim) readFiles(dir string, images []Image, looked *descriptors) error {
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if errors.Is(err, os.ErrNotExist) {
		c.Ended = true
		return nil
	}
	if err != nil {
		return err
	}
	if err := looked.take(c, len(fds)); err != nil {
		return err
	}
	for _, entry := range fds {
		// Through /proc, stat reaches the open file itself, even if it is unlinked or in another
		// mount namespace.
		got, err := Identify(filepath.Join(dir, "fd", entry.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for i, want := range images {
			if got != want {
				continue
			}
			file, err := openFile(dir, entry.Name())
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			file.Image = i
			c.add(file)
		}
	}
	return nil
}

// add stores at most one descriptor for reading and one for writing of each image, so that a
// process cannot inflate the list with thousands of descriptors.
func (c *Claim) add(file File) {
	if !slices.ContainsFunc(c.Files, func(f File) bool { return f.Image == file.Image && f.Writable == file.Writable }) {
		c.Files = append(c.Files, file)
	}
}

func openFile(dir, fd string) (File, error) {
	n, err := strconv.Atoi(fd)
	if err != nil {
		return File{}, fmt.Errorf("read descriptor number: %w", err)
	}
	info, err := os.ReadFile(filepath.Join(dir, "fdinfo", fd))
	if err != nil {
		return File{}, err
	}
	for line := range strings.Lines(string(info)) {
		octal, ok := strings.CutPrefix(line, "flags:")
		if !ok {
			continue
		}
		flags, err := strconv.ParseUint(strings.TrimSpace(octal), 8, 64)
		if err != nil {
			return File{}, fmt.Errorf("read descriptor flags: %w", err)
		}
		return File{FD: n, Writable: flags&unix.O_ACCMODE != unix.O_RDONLY}, nil
	}
	return File{}, fmt.Errorf("no flags in fdinfo of descriptor %s", fd)
}

// Image identifies an image independently of its path: a file by filesystem and inode, a block
// device by its number, because a process may use its own device node.
type Image struct {
	Block bool   `json:"block,omitempty"`
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino,omitempty"`
}

// Identify returns the image at a path. It does not ask a filesystem's server for attributes: a
// descriptor of another process may be on a FUSE mount that never answers.
func Identify(path string) (Image, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &st); err != nil {
		return Image{}, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return Image{Block: true, Dev: unix.Mkdev(st.Rdev_major, st.Rdev_minor)}, nil
	}
	return Image{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino}, nil
}

// About describes one process.
type About struct {
	Name string `json:"name"`
	// Ticks is the process's start time, in ticks since boot. It is empty if unknown.
	Ticks string `json:"ticks,omitempty"`
	// Program is the process's executable. It is zero if unknown.
	Program Image `json:"program,omitzero"`
	// Nodes are the images in the process's start arguments.
	Nodes []Node `json:"nodes,omitempty"`
	// Profile is the AppArmor profile that the kernel enforces on the process.
	Profile string `json:"profile,omitempty"`
	// Context is the SELinux context of the process: user:role:type:range.
	Context string `json:"context,omitempty"`
}

// ClosedFor waits openPoll between two looks and, the longer it lasts, up to maxOpenPoll.
const openPoll, maxOpenPoll, openPart = 2 * time.Millisecond, 50 * time.Millisecond, 50

// ClosedFor waits until a process has an image open, and returns how long it certainly had not,
// from the call on. The error is os.ErrNotExist if the process ends.
func (d Dir) ClosedFor(ctx context.Context, pid int, image Image) (time.Duration, error) {
	began := time.Now()
	for closed := time.Duration(0); ; {
		looked := time.Since(began)
		open, err := d.hasOpen(pid, image)
		if err != nil || open {
			return closed, err
		}
		closed = looked
		select {
		case <-ctx.Done():
			return closed, ctx.Err()
		case <-time.After(min(max(openPoll, looked/openPart), maxOpenPoll)):
		}
	}
}

func (d Dir) hasOpen(pid int, image Image) (bool, error) {
	dir := filepath.Join(d.of(pid), "fd")
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, entry := range fds {
		if is, err := Identify(filepath.Join(dir, entry.Name())); err == nil && is == image {
			return true, nil
		}
	}
	return false, nil
}

// Node is an image in QEMU's block graph. libvirt never uses a node name twice in the life of a
// process. It shows the node's number as the index of a <source>.
type Node struct {
	Filename string `json:"filename"`
	Name     string `json:"node-name"`
}

// About describes a process. The error is os.ErrNotExist if there is none.
func (d Dir) About(_ context.Context, pid int) (about About, err error) {
	dir := d.of(pid)
	if about.Ticks, err = startTicks(dir); err != nil {
		return about, err
	}
	name, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return about, err
	}
	about.Name = strings.TrimSpace(string(name))
	if about.Nodes, err = began(dir); err != nil {
		return about, err
	}
	about.Profile, about.Context = securityLabels(dir)
	if program, err := Identify(filepath.Join(dir, "exe")); err == nil {
		about.Program = program
	}
	return about, nil
}

// startTime is the index of the start time in /proc/PID/stat after the process name, which ends
// with the last bracket.
const startTime = 22 - 3

func startTicks(dir string) (string, error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= startTime {
		return "", nil
	}
	return fields[startTime], nil
}

func began(dir string) (nodes []Node, err error) {
	cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return nil, err
	}
	args := strings.Split(string(cmdline), "\x00")
	for i, arg := range args {
		var n Node
		if i > 0 && args[i-1] == "-blockdev" && json.Unmarshal([]byte(arg), &n) == nil && n.Filename != "" {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// securityLabels returns the label of the process that each security module reports, or "".
func securityLabels(dir string) (profile, context string) {
	label := SecurityLabel(dir)
	if profile, enforced := strings.CutSuffix(label, " (enforce)"); enforced {
		return profile, ""
	}
	if strings.Count(label, ":") >= 3 {
		return "", label
	}
	return "", ""
}

// SecurityLabel returns the label that a security module has given to a process, as the kernel
// writes it, or "" if no module reports one. dir is the directory of the process in /proc.
func SecurityLabel(dir string) string {
	for _, name := range []string{"attr/apparmor/current", "attr/current"} { // the first is newer
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return strings.TrimRight(string(text), "\x00\n")
		}
	}
	return ""
}
