// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/osthread"
)

// UserName returns the name of a user, or its number if it has no name.
func UserName(who hv.ProcessUser) string {
	name := strconv.FormatUint(uint64(who.UID), 10)
	if u, err := user.LookupId(name); err == nil {
		return u.Username
	}
	return name
}

// asUser runs f with the rights of a user on files, on a thread of its own, since
// rights belong to a thread. One that cannot be made root's again ends.
func asUser(who hv.ProcessUser, f func() error) (err error) {
	osthread.Own(func() (reusable bool) {
		reusable, err = withRightsOf(who, f)
		return reusable
	})
	return err
}

// withRightsOf runs f on this thread, and reports whether the thread has root's rights afterwards.
func withRightsOf(who hv.ProcessUser, f func() error) (restored bool, err error) {
	own, err := unix.Getgroups()
	if err != nil {
		return true, fmt.Errorf("read the groups of this process: %w", err)
	}
	err = takeRights(int(who.UID), int(who.GID), groupsOf(who))
	if err == nil {
		err = f()
	}
	back := takeRights(os.Geteuid(), os.Getegid(), own)
	return back == nil, errors.Join(err, back)
}

// takeRights changes as whom this thread uses files. It is done by system calls: the
// library's own functions change all threads.
func takeRights(uid, gid int, groups []int) error {
	list := make([]uint32, len(groups)+1) // never empty: it needs an address
	for i, g := range groups {
		list[i] = uint32(g)
	}
	setGroups := func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&list[0])), 0); errno != 0 {
			return errno
		}
		return nil
	}
	set := func(call func(int) (int, error), id int) error {
		_, _ = call(id) // it tells what was before, and nothing else
		if now, err := call(-1); err != nil || now != id {
			return errors.Join(unix.EPERM, err)
		}
		return nil
	}
	if err := cmp.Or(setGroups(), set(unix.SetfsgidRetGid, gid), set(unix.SetfsuidRetUid, uid)); err != nil {
		return fmt.Errorf("use files as user %d: %w", uid, err)
	}
	return nil
}

// groupsOf are the groups that libvirt gives QEMU's user.
func groupsOf(who hv.ProcessUser) []int {
	groups := []int{int(who.GID)}
	u, err := user.LookupId(strconv.FormatUint(uint64(who.UID), 10))
	if err != nil {
		return groups // a user without a name has none
	}
	ids, err := u.GroupIds()
	if err != nil {
		return groups
	}
	for _, text := range ids {
		if id, err := strconv.Atoi(text); err == nil {
			groups = append(groups, id)
		}
	}
	return groups
}
