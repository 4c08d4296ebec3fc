// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

// Stamp is metadata of an image. A later Stamp may show whether the image was written in between
// (ChangeSince).
type Stamp struct {
	SizeBytes int64 `json:"size_bytes,omitempty"`
	// ModifiedNS is when a file was last written, according to its filesystem. Changes of its
	// owner, mode or label do not count.
	ModifiedNS int64 `json:"modified_ns,omitempty"`
	// Sectors is how many sectors of a block device this host's kernel has written or discarded
	// since the boot. Writes of other hosts do not count. (Linux counts a flush as a write request
	// of no sectors.)
	Sectors int64 `json:"sectors,omitempty"`
	Device  bool  `json:"device,omitempty"`
	// Boot is the id of the boot when the stamp was read, and BootedNS the start of that boot,
	// by this host's clock.
	Boot     string `json:"boot,omitempty"`
	BootedNS int64  `json:"-"`
}

// Change is the comparison of two stamps of an image.
type Change int

// The changes.
const (
	ChangeUnknown Change = iota
	Unchanged
	Changed
)

// ChangeSince returns whether the image was written since the earlier stamp; nil stands for no
// stamp. why is the reason of an unknown result.
func (s Stamp) ChangeSince(earlier *Stamp) (change Change, why string) {
	switch {
	case earlier == nil:
		return ChangeUnknown, "it is not recorded how it was then"
	case s.Device != earlier.Device || s.SizeBytes != earlier.SizeBytes || s.ModifiedNS != earlier.ModifiedNS:
		return Changed, ""
	case !s.Device && s.ModifiedNS == 0:
		return ChangeUnknown, "its server does not say when it was last written"
	case s.Device && s.Boot != earlier.Boot:
		return ChangeUnknown, "it is a device, and the kernel counts the writes to it from zero since the host was booted"
	case s.Sectors < earlier.Sectors:
		return ChangeUnknown, "it is a device, and the kernel counts the writes to it from zero since it was disconnected"
	case s.Sectors != earlier.Sectors:
		return Changed, ""
	}
	return Unchanged, ""
}

// WrittenSince reports whether the image is known to have been written since the earlier stamp.
// False is no proof that it was not; use ChangeSince for that.
func (s Stamp) WrittenSince(earlier Stamp) bool {
	change, _ := s.ChangeSince(&earlier)
	return change == Changed
}

// RebootedSince reports whether the host was booted since the earlier stamp.
func (s Stamp) RebootedSince(earlier Stamp) bool { return s.Boot != earlier.Boot }

// UntouchedInItsBoot reports whether the image is known to be unwritten from the host's boot until
// the stamp was read.
func (s Stamp) UntouchedInItsBoot() bool {
	switch {
	case s.Boot == "":
		return false
	case s.Device:
		return s.Sectors == 0
	}
	return s.ModifiedNS <= s.BootedNS
}

// The fields of a device's stat file that count its changes (Documentation/block/stat.rst).
const (
	statSectorsWritten   = 6
	statSectorsDiscarded = 13
)

var sysBlock = "/sys/dev/block"

const bootIDFile = "/proc/sys/kernel/random/boot_id"

func (h host) stamp(_ context.Context, path string) (Stamp, error) {
	var st unix.Stat_t
	if err := h.stat(path, &st); err != nil {
		return Stamp{}, noImage(err)
	}
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return Stamp{}, fmt.Errorf("tell this boot from others: %w", err)
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return Stamp{}, fmt.Errorf("see how long this host is up: %w", err)
	}
	stamp := Stamp{Boot: strings.TrimSpace(string(boot)), BootedNS: time.Now().UnixNano() - up.Nano()}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		stamp.SizeBytes, stamp.ModifiedNS = st.Size, st.Mtim.Nano()
		return stamp, nil
	case unix.S_IFBLK:
		stamp.Device = true
		stamp.Sectors, err = sectorsChanged(st.Rdev)
		return stamp, err
	}
	return Stamp{}, api.Errorf(api.CodeInvalidArgument, "%s is neither a regular file nor a block device", path)
}

var nfsMagic int64 = unix.NFS_SUPER_MAGIC

// stat reads the metadata of a file or device. On NFS it opens the file: otherwise the kernel
// would return metadata cached for some seconds.
func (h host) stat(path string, st *unix.Stat_t) error {
	failed := func(op string, err error) error {
		if err == nil {
			return nil
		}
		return &os.PathError{Op: op, Path: path, Err: err}
	}
	if err := unix.Stat(path, st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return failed("stat", err)
	}
	var on unix.Statfs_t
	if err := unix.Statfs(path, &on); err != nil || on.Type != nfsMagic {
		return failed("statfs", err)
	}
	f, err := h.Files.Open(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return failed("stat", unix.Fstat(int(f.Fd()), st))
}

func sectorsChanged(dev uint64) (sectors int64, err error) {
	file := filepath.Join(sysBlock, fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)), "stat")
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read the counters of a block device: %w", err)
	}
	fields := strings.Fields(string(text))
	for _, i := range []int{statSectorsWritten, statSectorsDiscarded} {
		if i >= len(fields) {
			continue // an old kernel does not count discards
		}
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the counters in %s: %w", file, err)
		}
		sectors += n
	}
	return sectors, nil
}
