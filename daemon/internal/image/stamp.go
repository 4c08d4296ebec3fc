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
	// counted in the boot with the id Boot. What other hosts write is not in it.
	Writes int64  `json:"writes,omitempty"`
	Boot   string `json:"boot,omitempty"`
}

// WrittenSince says whether the image with this stamp was written since the earlier
// one. It is false where nobody can tell: of a device, after a reboot of the host.
func (s Stamp) WrittenSince(earlier Stamp) bool {
	if s.Boot != "" || earlier.Boot != "" {
		return s.Boot == earlier.Boot && s.Writes != earlier.Writes
	}
	return s != earlier
}

// The fields of a device's stat file that count what changes it.
const (
	statWrites   = 4
	statDiscards = 11
)

// sysBlock and bootIDFile are variables for the tests.
var (
	sysBlock   = "/sys/dev/block"
	bootIDFile = "/proc/sys/kernel/random/boot_id"
)

// Stamp reads the stamp of the image at path. ErrAbsent if there is nothing.
func (Storage) Stamp(_ context.Context, path string) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Stamp{}, noImage(&os.PathError{Op: "stat", Path: path, Err: err})
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return Stamp{SizeBytes: st.Size, ModifiedNS: st.Mtim.Nano()}, nil
	case unix.S_IFBLK:
		return deviceStamp(path, st.Rdev)
	}
	return Stamp{}, api.Errorf(api.CodeInvalidArgument, "%s is neither a regular file nor a block device", path)
}

func deviceStamp(path string, dev uint64) (Stamp, error) {
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return Stamp{}, fmt.Errorf("tell this boot from others: %w", err)
	}
	number := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	text, err := os.ReadFile(filepath.Join(sysBlock, number, "stat"))
	if err != nil {
		return Stamp{}, fmt.Errorf("read the counters of %s: %w", path, err)
	}
	s := Stamp{Boot: strings.TrimSpace(string(boot))}
	fields := strings.Fields(string(text))
	for _, i := range []int{statWrites, statDiscards} {
		if i >= len(fields) {
			continue // an old kernel does not count discards
		}
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return Stamp{}, fmt.Errorf("read the counters of %s: %w", path, err)
		}
		s.Writes += n
	}
	return s, nil
}
