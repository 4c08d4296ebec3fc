// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/osthread"
)

// User is a user of this host as the kernel knows it.
type User struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups,omitempty"`
}

// As runs f with a user's rights on files, on its own thread, because such rights belong to a
// thread. If the thread cannot get its own rights back, it ends.
func (u User) As(f func() error) (err error) {
	osthread.Own(func() (reusable bool) {
		reusable, err = u.withRights(f)
		return reusable
	})
	return err
}

// withRights runs f on this thread, and reports whether the thread has its own rights afterwards.
func (u User) withRights(f func() error) (restored bool, err error) {
	own, err := unix.Getgroups()
	if err != nil {
		return true, fmt.Errorf("read the groups of this process: %w", err)
	}
	err = u.take()
	if err == nil {
		err = f()
	}
	back := User{UID: os.Geteuid(), GID: os.Getegid(), Groups: own}.take()
	return back == nil, errors.Join(err, back)
}

// take gives this thread the user's access to files. It makes raw system calls, because the
// library's functions change all threads.
func (u User) take() error {
	list := make([]uint32, len(u.Groups)+1) // never empty: its address is needed
	for i, g := range u.Groups {
		list[i] = uint32(g)
	}
	setGroups := func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(unsafe.Pointer(&list[0])), 0); errno != 0 {
			return errno
		}
		return nil
	}
	set := func(call func(int) (int, error), id int) error {
		_, _ = call(id) // it only returns the previous value
		if now, err := call(-1); err != nil || now != id {
			return errors.Join(unix.EPERM, err)
		}
		return nil
	}
	if err := cmp.Or(setGroups(), set(unix.SetfsgidRetGid, u.GID), set(unix.SetfsuidRetUid, u.UID)); err != nil {
		return fmt.Errorf("use files as user %d: %w", u.UID, err)
	}
	return nil
}
