// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kind is the kind of owner of a quota.
type Kind string

// The kinds of quotas.
const (
	User    Kind = "user"
	Group   Kind = "group"
	Project Kind = "project"
)

// Owner has the ids of a file's user, group and project.
type Owner struct {
	User    uint32 `json:"user"`
	Group   uint32 `json:"group"`
	Project uint32 `json:"project"`
}

// Limit is the space limit of the files of one user, group or project on a filesystem.
type Limit struct {
	Kind Kind   `json:"kind"`
	ID   uint32 `json:"id"`
	// Bytes is the soft limit, if there is one: an owner who exceeds it for too long gets no more
	// space.
	Bytes     int64 `json:"bytes"`
	UsedBytes int64 `json:"used_bytes"`
	// AsFull is true if a write beyond the limit fails with ENOSPC, as on a full filesystem, and
	// not with EDQUOT.
	AsFull bool `json:"as_full,omitempty"`
}

// FreeBytes returns the remaining space.
func (l *Limit) FreeBytes() int64 { return max(0, l.Bytes-l.UsedBytes) }

// Free returns how much a file may grow: the least of its filesystem's free bytes and the space
// that these limits leave.
func Free(free int64, limits []Limit) int64 {
	for i := range limits {
		free = min(free, limits[i].FreeBytes())
	}
	return free
}

// These numbers are from the kernel's linux/quota.h, linux/dqblk_xfs.h and linux/fs.h. All kernel
// filesystems with quotas support the two commands, which only read.
const (
	getQuota = 'X'<<8 + 3 // Q_XGETQUOTA
	getState = 'X'<<8 + 8 // Q_XGETQSTATV

	diskQuotaBytes  = 112 // struct fs_disk_quota
	hardLimitOffset = 8
	softLimitOffset = 16
	usedOffset      = 40
	unitBytes       = 512

	stateBytes   = 256 // more than a struct fs_quota_statv
	stateVersion = 1
	flagsOffset  = 2

	getAttributes      = 0x801c581f // FS_IOC_FSGETXATTR
	attributesBytes    = 28         // struct fsxattr
	projectOffset      = 12
	projectIsInherited = 0x200 // FS_XFLAG_PROJINHERIT
	noProject          = 0
)

// kinds has the kernel's number of each kind of quota, and the flag of its enforcement.
var kinds = []struct {
	kind     Kind
	number   uintptr
	enforced uint16
}{{User, 0, 1 << 1}, {Group, 1, 1 << 3}, {Project, 2, 1 << 5}}

// Limits returns the enforced limits of an owner's files on the filesystem of an open directory or
// file. It needs CAP_SYS_ADMIN.
func Limits(at *os.File, who Owner) ([]Limit, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(at.Fd()), &fs); err != nil {
		return nil, fmt.Errorf("look at the filesystem of %s: %w", at.Name(), err)
	}
	state := make([]byte, stateBytes)
	state[0] = stateVersion
	if err := ask(at, getState, 0, 0, state); absent(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("ask for the quotas of the filesystem of %s: %w", at.Name(), err)
	}
	flags := binary.NativeEndian.Uint16(state[flagsOffset:])
	ids := map[Kind]uint32{User: who.User, Group: who.Group, Project: who.Project}
	var limits []Limit
	xfs := fs.Type == unix.XFS_SUPER_MAGIC
	for _, k := range kinds {
		if flags&k.enforced == 0 || xfs && ids[k.kind] == 0 { // id 0 of XFS has the defaults of new ids, and no limit
			continue
		}
		answer := make([]byte, diskQuotaBytes)
		if err := ask(at, getQuota, k.number, ids[k.kind], answer); absent(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("ask for the quota of %s %d in %s: %w", k.kind, ids[k.kind], at.Name(), err)
		}
		l := Limit{
			Kind: k.kind, ID: ids[k.kind], Bytes: bytesAt(answer, softLimitOffset), UsedBytes: bytesAt(answer, usedOffset),
			AsFull: k.kind == Project && xfs, // xfs_trans_dqresv
		}
		if l.Bytes == 0 {
			l.Bytes = bytesAt(answer, hardLimitOffset)
		}
		if l.Bytes > 0 {
			limits = append(limits, l)
		}
	}
	return limits, nil
}

// ProjectIn returns the project of new files in an open directory.
func ProjectIn(dir *os.File) (uint32, error) {
	attributes := make([]byte, attributesBytes)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), getAttributes, uintptr(unsafe.Pointer(&attributes[0])))
	switch {
	case errno == unix.ENOTTY || errno == unix.EOPNOTSUPP:
		return noProject, nil // the filesystem has no projects
	case errno != 0:
		return 0, fmt.Errorf("ask for the project of %s: %w", dir.Name(), errno)
	case binary.NativeEndian.Uint32(attributes)&projectIsInherited == 0:
		return noProject, nil
	}
	return binary.NativeEndian.Uint32(attributes[projectOffset:]), nil
}

func absent(err error) bool {
	for _, no := range []error{unix.ENOSYS, unix.ESRCH, unix.ENOENT, unix.EOPNOTSUPP} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

func bytesAt(answer []byte, offset int) int64 {
	return int64(binary.NativeEndian.Uint64(answer[offset:])) * unitBytes //nolint:gosec // no filesystem is as large
}

func ask(at *os.File, command, kind uintptr, id uint32, answer []byte) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, at.Fd(), command<<8|kind, uintptr(id), uintptr(unsafe.Pointer(&answer[0])), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
