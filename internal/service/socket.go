// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketMode lets owner and group connect. Handlers decide what a peer may do.
const socketMode = 0o660

// maxSocketPath is the capacity of a sockaddr_un in bytes, without the final zero.
const maxSocketPath = 107

// listenSocket returns the listener at path that systemd passed, or opens one. It makes a missing
// directory with mode 0750.
func listenSocket(ctx context.Context, path string, gid int) (net.Listener, error) {
	if l, err := handedOver("unix", path); l != nil || err != nil {
		return l, err
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the socket path %s is longer than the %d bytes that the kernel takes", path, maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("make socket directory: %w", err)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: restrictMode}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := open(path, gid); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// restrictMode sets the mode before the socket appears in the file system, so that other users can
// never connect.
func restrictMode(_, _ string, c syscall.RawConn) error {
	var chmodErr error
	err := c.Control(func(fd uintptr) { chmodErr = unix.Fchmod(int(fd), socketMode) })
	return errors.Join(err, chmodErr)
}

// open sets group and mode of the socket, regardless of the umask.
func open(path string, gid int) error {
	if gid >= 0 {
		if err := os.Chown(path, -1, gid); err != nil {
			return fmt.Errorf("give socket to its group: %w", err)
		}
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return fmt.Errorf("set mode of socket: %w", err)
	}
	return nil
}

// removeStale removes the socket of a killed process at path. It refuses other files and a socket
// with a listener.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket path: %w", err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s exists and is no socket; remove it or choose another path", path)
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("another process is listening at %s", path), c.Close())
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot tell whether another process is listening: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}
