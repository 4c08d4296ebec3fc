// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Access asks the kernel what another user may do with an open file. It neither reads nor writes
// the file's content, and passes nothing to the user.
type Access struct {
	// Socket is the socket of `volferryd access`, which makes the checks. If it is empty, this
	// process makes them.
	Socket string
}

// MayOpen returns nil if a user may open a file again for reading and writing, or the kernel's
// error.
func (a Access) MayOpen(ctx context.Context, who User, f *os.File) error {
	return a.look(ctx, callMayOpen, who, f)
}

// MayPass returns nil if a user may traverse a directory, or the kernel's error. O_PATH suffices
// for dir.
func (a Access) MayPass(ctx context.Context, who User, dir *os.File) error {
	return a.look(ctx, callMayPass, who, dir)
}

// MayConnect returns nil if a user may connect to a socket, or the kernel's error. socket is open
// with O_PATH.
func (a Access) MayConnect(ctx context.Context, who User, socket *os.File) error {
	return a.look(ctx, callMayConnect, who, socket)
}

var looks = map[string]func(*os.File) error{callMayOpen: openAgain, callMayPass: lookInto, callMayConnect: openSocket}

func (a Access) look(ctx context.Context, call string, who User, f *os.File) error {
	if a.Socket == "" {
		return who.As(func() error { return looks[call](f) })
	}
	_, _, err := ask(ctx, a.Socket, request{Call: call, User: &who}, f)
	return err
}

// ServeAccess serves Access at a socket until ctx ends, and closes the socket.
func ServeAccess(ctx context.Context, listener *net.UnixListener, log *slog.Logger) error {
	return serve(ctx, listener, answerAccess, log)
}

func answerAccess(_ context.Context, in request, file *os.File) (answer, *os.File) {
	look := looks[in.Call]
	switch {
	case look == nil:
		return failed(fmt.Errorf("there is no call %q here", in.Call)), nil
	case file == nil || in.User == nil:
		return failed(errors.New("no file, or no user, came with the request")), nil
	}
	if err := in.User.As(func() error { return look(file) }); err != nil {
		return failed(err), nil
	}
	return answer{}, nil
}

func openAgain(f *os.File) error {
	again, err := os.OpenFile(pathOf(f), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return again.Close()
}

func lookInto(dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), ".", &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "look into", Path: dir.Name(), Err: err}
	}
	return nil
}

// openSocket tries to open a socket for writing, because a connection needs write access. A socket
// cannot be opened like a file: ENXIO shows that the kernel has checked and permitted the access.
func openSocket(socket *os.File) error {
	fd, err := unix.Open(pathOf(socket), unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENXIO):
		return nil
	case err != nil:
		return &os.PathError{Op: "connect", Path: socket.Name(), Err: err}
	}
	return errors.Join(fmt.Errorf("%s is no socket", socket.Name()), unix.Close(fd))
}

func pathOf(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
