// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// ReachError says which directory a user may not pass through.
type ReachError struct {
	User hv.ProcessUser
	Dir  string
	Mode os.FileMode
}

func (e *ReachError) Error() string {
	return fmt.Sprintf("QEMU runs as %s here and may not pass through %s (mode %04o); give others the right to (chmod o+x %[2]s), or use another directory",
		UserName(e.User), e.Dir, e.Mode.Perm())
}

// UserName is the name of a user, or the number where it has none.
func UserName(who hv.ProcessUser) string {
	name := strconv.FormatUint(uint64(who.UID), 10)
	if u, err := user.LookupId(name); err == nil {
		return u.Username
	}
	return name
}

// refusal is the error for whoever wanted to do something (what) with path.
func (e *ReachError) refusal(what, path string) *api.Error {
	return api.Errorf(api.CodePermissionDenied, "cannot %s: QEMU would not get to %s: %v", what, path, e).With("directory", e.Dir)
}

// Refused is the error for whoever wanted to do something (what), where err says that
// QEMU's user does not get to path (Reach) or cannot open an image (MayOpen). Any other
// error is returned as it is.
func Refused(what, path string, err error) error {
	var blocked *ReachError
	var cannot *OpenError
	switch {
	case errors.As(err, &blocked):
		return blocked.refusal(what, path)
	case errors.As(err, &cannot):
		return cannot.refusal(what)
	}
	return err
}

// reachTimeout bounds Reach and MayOpen on a filesystem that does not answer.
const reachTimeout = 5 * time.Second

// Reach returns nil if a process of this user gets to what is in a directory, which may
// be reached by links, and a *ReachError if it may not. Whether it may open an image
// there says MayOpen: libvirt gives images to QEMU's user, directories it does not.
func (Storage) Reach(who hv.ProcessUser, dir string) error {
	if who.UID == 0 {
		return nil
	}
	return answered("QEMU gets to "+dir, func() error { return reach(who, dir) })
}

// answered is look, whether something is so, with a bound.
func answered(what string, look func() error) error {
	answer := make(chan error, 1)
	go func() { answer <- look() }()
	bound := time.NewTimer(reachTimeout)
	defer bound.Stop()
	select {
	case err := <-answer:
		return err
	case <-bound.C:
		return fmt.Errorf("look whether %s: %w", what, location.ErrNoAnswer)
	}
}

func reach(who hv.ProcessUser, dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("look whether QEMU gets to %s: %w", dir, noImage(err))
	}
	// The kernel is asked as that user, directory by directory: it knows of access
	// lists, and of what the server of a mount thinks of root.
	if err := asUser(who, func() error { return pass(who, real) }); err != nil {
		return fmt.Errorf("look whether QEMU gets to %s: %w", dir, err)
	}
	return nil
}

// pass walks down to a directory.
func pass(who hv.ProcessUser, dir string) error {
	at := "/"
	for _, part := range append(strings.Split(strings.Trim(dir, "/"), "/"), "") {
		var st unix.Stat_t
		err := unix.Lstat(strings.TrimSuffix(at, "/")+"/.", &st)
		if errors.Is(err, unix.EACCES) {
			blocked := &ReachError{User: who, Dir: at}
			if unix.Lstat(at, &st) == nil { // the directory that it is in was passed
				blocked.Mode = os.FileMode(st.Mode & 0o777)
			}
			return blocked
		}
		if err != nil {
			return &os.PathError{Op: "look into", Path: at, Err: err}
		}
		at = filepath.Join(at, part)
	}
	return nil
}

// asUser runs f with the rights of a user on files, in a goroutine of its own, since
// rights belong to a thread. One that cannot be made root's again ends with its
// goroutine, which has not unlocked it then.
func asUser(who hv.ProcessUser, f func() error) error {
	outcome := make(chan error, 1)
	go func() { outcome <- onThreadOf(who, f) }()
	return <-outcome
}

func onThreadOf(who hv.ProcessUser, f func() error) error {
	runtime.LockOSThread()
	own, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("read the groups of this process: %w", err)
	}
	err = takeRights(int(who.UID), int(who.GID), groupsOf(who))
	if err == nil {
		err = f()
	}
	if back := takeRights(os.Geteuid(), os.Getegid(), own); back != nil {
		return errors.Join(err, back)
	}
	runtime.UnlockOSThread()
	return err
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
