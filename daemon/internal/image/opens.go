// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// OpenError reports that QEMU could not open an image.
type OpenError struct {
	User hv.ProcessUser
	Path string
	Mode os.FileMode
	UID  uint32
	// NotGiven is true if root, and so libvirt, may not make QEMU's user the owner of the image.
	NotGiven bool
}

func (e *OpenError) Error() string {
	who := UserName(e.User)
	why := "and libvirt does not make it the owner (dynamic_ownership = 0 in qemu.conf, or relabel='no' in the instance)"
	if e.User.Given {
		why = "also as its owner"
	}
	if e.NotGiven {
		why = "and root may not make it the owner there (NFS with root_squash, or a filesystem without owners)"
	}
	return fmt.Sprintf("QEMU runs as %s here and may not read and write %s (owner %d, mode %04o), %s; let it in (`%s`, or `%s`), or use another directory or pool",
		who, e.Path, e.UID, e.Mode.Perm(), why, shell.Line("chown", "--", who, e.Path), shell.Line("setfacl", "-m", "u:"+who+":rw", "--", e.Path))
}

func (e *OpenError) refusal(what string) *api.Error {
	return api.Errorf(api.CodePermissionDenied, "cannot %s: %v", what, e).With("path", e.Path).With("user", UserName(e.User))
}

func (h host) mayOpen(user qemuUser, path string) error {
	return answered("QEMU can open "+path, func() error {
		f, err := h.Open(path, os.O_RDONLY)
		if err != nil {
			return noImage(err)
		}
		defer func() { _ = f.Close() }()
		return user.mayOpen(f)
	})
}

func (u qemuUser) mayOpen(f *os.File) error {
	err := u.openAs(f)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	cannot := &OpenError{User: u.who, Path: f.Name(), Mode: os.FileMode(st.Mode & 0o777), UID: st.Uid}
	if !u.who.Given {
		return cannot
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return nil // /dev is this host's, so libvirt can change its owners
	}
	if err := f.Chown(int(u.who.UID), int(u.who.GID)); refused(err) {
		cannot.NotGiven = true
		return cannot
	} else if err != nil {
		return fmt.Errorf("look whether QEMU can open it: %w", err)
	}
	err = u.openAs(f)
	if back := f.Chown(int(st.Uid), int(st.Gid)); back != nil {
		return errors.Join(err, fmt.Errorf("give an image back that was lent: %w", back))
	}
	if errors.Is(err, fs.ErrPermission) {
		return cannot
	}
	return err
}

func (u qemuUser) mayConnectTo(socket string) error {
	real, err := filepath.EvalSymlinks(socket)
	if err != nil {
		return err
	}
	for _, path := range []string{socket, real} { // QEMU needs access to the link, and to the socket
		if err := u.reach(filepath.Dir(path)); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(real, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	err = u.access.MayConnect(ctx, userOf(u.who), f)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return api.Errorf(api.CodePermissionDenied, "QEMU runs as %s here and may not connect to %s; let it in (`%s`)", UserName(u.who), socket,
		shell.Line("setfacl", "-m", "u:"+UserName(u.who)+":rw", "--", socket))
}

func (u qemuUser) openAs(f *os.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	return u.access.MayOpen(ctx, userOf(u.who), f)
}

// TryDirectory makes an image in a directory, tests the operations that needs requires, checks the
// image with MayOpen, and removes it. It returns a *LimitError for unsupported operations. It
// omits MayOpen if libvirt does not make QEMU's user the owner of images.
func (s Storage) TryDirectory(who hv.ProcessUser, dir string, needs Needs) error {
	return answered("an image can be made in "+dir, func() error { return s.user(who).tryDirectory(dir, needs) })
}

func (u qemuUser) tryDirectory(dir string, needs Needs) error {
	f, path, remove, err := trialFile(dir)
	if err != nil {
		return err
	}
	defer remove()
	if err := needs.check(f, path, dir); err != nil {
		return err
	}
	if !u.who.Given {
		return nil
	}
	if u.who.UID != 0 {
		err = u.mayOpen(f)
	}
	var cannot *OpenError
	if errors.As(err, &cannot) {
		cannot.Path = "what is made in " + dir
	}
	return err
}

// trialFile makes a file in a directory. Until remove is called, the file can be opened again at
// path.
func trialFile(dir string) (f *os.File, path string, remove func(), err error) {
	f, err = os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err == nil {
		return f, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), func() { _ = f.Close() }, nil
	}
	// The filesystem has no unnamed files.
	if f, err = os.CreateTemp(dir, ".volferry-doctor-"); err != nil {
		return nil, "", nil, err
	}
	return f, f.Name(), func() {
		_ = os.Remove(f.Name())
		_ = f.Close()
	}, nil
}

// Refused translates an error of Reach, MayOpen or TryDirectory to a refusal that begins with
// "cannot " and what. It returns any other error unchanged.
func Refused(what, path string, err error) error {
	var blocked *ReachError
	var cannot *OpenError
	var limit *LimitError
	switch {
	case errors.As(err, &limit):
		return limit.refusal(what)
	case errors.As(err, &blocked):
		return blocked.refusal(what, path)
	case errors.As(err, &cannot):
		return cannot.refusal(what)
	}
	return err
}
