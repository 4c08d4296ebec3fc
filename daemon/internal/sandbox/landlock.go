// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The versions of Landlock that added these restrictions.
const (
	landlockTruncate = 3
	landlockSignals  = 6
)

// restrictThread puts the calling thread into its own Landlock domain, which the program that the
// thread starts inherits. The program cannot inspect processes outside of the domain (ptrace,
// /proc/PID/fd) or, since Linux 6.12, send them signals. It can open for writing only /dev/null,
// the given files that are already open for writing, and the given files that written lists by
// index. restrictThread returns false if the kernel has no Landlock (before Linux 5.13).
func restrictThread(given []*os.File, written []int) (restricted bool, err error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
	case unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM: // not built, not enabled, or blocked by a filter
		return false, nil
	default:
		return false, fmt.Errorf("ask for the version of Landlock: %w", errno)
	}
	rules := unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_WRITE_FILE}
	if version >= landlockTruncate {
		rules.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= landlockSignals {
		rules.Scoped = unix.LANDLOCK_SCOPE_SIGNAL
	}
	// A kernel that knows fewer fields accepts the other fields if they are zero.
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), unsafe.Sizeof(rules), 0)
	if errno != 0 {
		return false, fmt.Errorf("make a Landlock domain: %w", errno)
	}
	defer unix.Close(int(fd)) //nolint:errcheck // the thread has the domain
	// If QEMU cannot open /dev/null for writing, it locks no image, and only warns.
	null, err := os.OpenFile(os.DevNull, unix.O_PATH, 0)
	if err != nil {
		return false, err
	}
	defer null.Close() //nolint:errcheck // the file is only open with O_PATH
	if err := allowWriting(int(fd), null, rules.Handled_access_fs); err != nil {
		return false, err
	}
	for n, f := range given {
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
		if err != nil {
			return false, fmt.Errorf("look at a file for Landlock: %w", err)
		}
		if flags&unix.O_ACCMODE == unix.O_RDONLY && !slices.Contains(written, n) {
			continue
		}
		if err := allowWriting(int(fd), f, rules.Handled_access_fs); err != nil {
			return false, err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return false, fmt.Errorf("give up new privileges: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return false, fmt.Errorf("enter a Landlock domain: %w", errno)
	}
	return true, nil
}

// allowWriting adds a rule for one file. Pipes, sockets and files in memory need none.
func allowWriting(ruleset int, f *os.File, access uint64) error {
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(f.Fd())}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 && !errors.Is(errno, unix.EBADFD) {
		return fmt.Errorf("let a program write to %s: %w", f.Name(), errno)
	}
	return nil
}
