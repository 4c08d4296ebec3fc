// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

// Stamp tells an image that was written from one that was not, without reading it.
type Stamp struct {
	SizeBytes int64 `json:"size_bytes,omitempty"`
	// ModifiedNS is when a file was last written, by its filesystem. A change of its
	// owner, mode or label is none.
	ModifiedNS int64 `json:"modified_ns,omitempty"`
	// Writes is how many writes and discards of a block device the kernel of this host has
	// counted in this boot. What other hosts write is not in it.
	Writes int64 `json:"writes,omitempty"`
	Device bool  `json:"device,omitempty"`
	// Boot is the id of the boot in which the stamp was read.
	Boot string `json:"boot,omitempty"`
}

// WrittenSince says whether the image with this stamp was written since the earlier
// one. It is false where nobody can tell: of a device, after a reboot of the host.
func (s Stamp) WrittenSince(earlier Stamp) bool {
	if s.Device && s.Boot != earlier.Boot {
		return false
	}
	return s.SizeBytes != earlier.SizeBytes || s.ModifiedNS != earlier.ModifiedNS || s.Writes != earlier.Writes
}

// RebootedSince says whether the host was booted since the earlier stamp was read.
func (s Stamp) RebootedSince(earlier Stamp) bool { return s.Boot != earlier.Boot }

// The fields of a device's stat file that count what changes it.
const (
	statWrites   = 4
	statDiscards = 11
)

// sysBlock is a variable for the tests.
var sysBlock = "/sys/dev/block"

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// Stamp reads the stamp of the image at path. ErrAbsent if there is nothing.
func (Storage) Stamp(_ context.Context, path string) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Stamp{}, noImage(&os.PathError{Op: "stat", Path: path, Err: err})
	}
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return Stamp{}, fmt.Errorf("tell this boot from others: %w", err)
	}
	s := Stamp{Boot: strings.TrimSpace(string(boot))}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.SizeBytes, s.ModifiedNS = st.Size, st.Mtim.Nano()
		return s, nil
	case unix.S_IFBLK:
		s.Device = true
		s.Writes, err = writesTo(st.Rdev)
		return s, err
	}
	return Stamp{}, api.Errorf(api.CodeInvalidArgument, "%s is neither a regular file nor a block device", path)
}

// writesTo is how often a block device was written, or discarded, in this boot.
func writesTo(dev uint64) (writes int64, err error) {
	file := filepath.Join(sysBlock, fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)), "stat")
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read the counters of a block device: %w", err)
	}
	fields := strings.Fields(string(text))
	for _, i := range []int{statWrites, statDiscards} {
		if i >= len(fields) {
			continue // an old kernel does not count discards
		}
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the counters in %s: %w", file, err)
		}
		writes += n
	}
	return writes, nil
}
