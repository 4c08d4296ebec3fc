// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab/workload"
)

// findDisks waits for the first disk and returns them all.
func findDisks() (found []workload.GuestDisk, err error) {
	ok, err := appears(func() (bool, error) {
		found, err = listDisks()
		return len(found) > 0, err
	})
	if err != nil {
		return nil, fmt.Errorf("find disks: %w", err)
	}
	if !ok {
		return nil, errors.New("find disks: no virtio disk appeared")
	}
	return found, nil
}

// watchDisks reports whenever the disks are others than those that are known.
func watchDisks(p *port, known []workload.GuestDisk) {
	const interval = 200 * time.Millisecond // each look takes a guest without KVM milliseconds
	for range time.Tick(interval) {
		// A disk that comes or goes in this moment is looked at again in the next.
		if now, err := listDisks(); err == nil && !slices.Equal(now, known) {
			known = now
			p.send(workload.Report{Type: workload.ReportDisks, Disks: now})
		}
	}
}

func listDisks() ([]workload.GuestDisk, error) {
	paths, err := filepath.Glob("/sys/block/vd*")
	if err != nil {
		return nil, err
	}
	var found []workload.GuestDisk
	for _, path := range paths {
		d, err := inspectDisk(path)
		if err != nil {
			return nil, err
		}
		found = append(found, d)
	}
	return found, nil
}

// inspectDisk reads what sysfs tells about a disk.
func inspectDisk(sysfs string) (workload.GuestDisk, error) {
	const sectorSize = 512
	name := filepath.Base(sysfs)
	sectors, err := strconv.ParseUint(attribute(sysfs, "size"), 10, 64)
	if err != nil {
		return workload.GuestDisk{}, fmt.Errorf("read size of %s: %w", name, err)
	}
	return workload.GuestDisk{
		Name:     name,
		Serial:   attribute(sysfs, "serial"),
		Blocks:   sectors * sectorSize / workload.BlockSize,
		ReadOnly: attribute(sysfs, "ro") == "1",
	}, checkBlockDevice(name)
}

// attribute reads a file of sysfs; one that is not there is empty.
func attribute(dir, name string) string {
	data, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(data))
}

// checkBlockDevice insists on a block device: a writer that quietly writes to a
// file in memory proves nothing.
func checkBlockDevice(name string) error {
	var st unix.Stat_t
	if err := unix.Stat("/dev/"+name, &st); err != nil {
		return fmt.Errorf("inspect /dev/%s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return fmt.Errorf("/dev/%s is not a block device", name)
	}
	return nil
}

// disk is a block device, opened to pass by the guest's page cache.
type disk struct {
	fd int
}

func openDisk(name string) (*disk, error) {
	if err := checkBlockDevice(name); err != nil {
		return nil, err
	}
	fd, err := unix.Open("/dev/"+name, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &disk{fd: fd}, nil
}

func (d *disk) close() { _ = unix.Close(d.fd) }

// do performs one operation, and says how long the flush behind it took. buf is aligned to
// a page and has room for the largest write.
func (d *disk) do(op workload.Op, buf []byte) (flush time.Duration, err error) {
	start, length := op.Block*workload.BlockSize, op.Count*workload.BlockSize
	switch op.Kind {
	case workload.Write:
		err = d.write(buf[:length], int64(start))
	case workload.Zero:
		err = d.ioctlRange(unix.BLKZEROOUT, start, length)
	case workload.Discard:
		err = d.ioctlRange(unix.BLKDISCARD, start, length)
	default:
		err = fmt.Errorf("unknown operation %q", op.Kind)
	}
	if err != nil || !op.Flush {
		return 0, err
	}
	begin := time.Now()
	err = unix.Fdatasync(d.fd)
	return time.Since(begin), err
}

// write writes all of buf at offset, whatever the kernel makes of it.
func (d *disk) write(buf []byte, offset int64) error {
	for len(buf) > 0 {
		n, err := unix.Pwrite(d.fd, buf, offset)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		buf, offset = buf[n:], offset+int64(n)
	}
	return nil
}

// ioctlRange issues an ioctl whose argument is {start, length} in bytes.
func (d *disk) ioctlRange(request uint, start, length uint64) error {
	arg := [2]uint64{start, length}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), uintptr(request), uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return errno
	}
	return nil
}

// newBuffer returns memory that is aligned for O_DIRECT, with room for so many
// blocks.
func newBuffer(blocks uint64) ([]byte, error) {
	buf, err := unix.Mmap(-1, 0, int(blocks)*workload.BlockSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map buffer: %w", err)
	}
	return buf, nil
}
