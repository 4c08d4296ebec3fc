// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel answers, whichever program asks.
func TestWhatAUserMayDoIsSaidOfTheOpenFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root to ask as another user")
	}
	for who, a := range map[string]Access{"itself": {}, "another program": {Socket: serving(t, ServeAccess)}} {
		t.Run(who, func(t *testing.T) {
			dir := t.TempDir() // no other user can traverse it: the path would not work
			user := User{UID: 64055, GID: 64055, Groups: []int{64055, 4242}}
			image := filepath.Join(dir, "image")
			if err := os.WriteFile(image, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			var dials net.ListenConfig
			listener, err := dials.Listen(t.Context(), "unix", filepath.Join(dir, "socket"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = listener.Close() })
			within := filepath.Join(dir, "directory")
			if err := os.Mkdir(within, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				path   string
				flags  int
				look   func(context.Context, User, *os.File) error
				denied fs.FileMode
				given  fs.FileMode // to the group 4242
			}{
				{image, os.O_RDONLY, a.MayOpen, 0o640, 0o660},
				{within, unix.O_PATH, a.MayPass, 0o740, 0o710},
				{listener.Addr().String(), unix.O_PATH, a.MayConnect, 0o740, 0o720},
			} {
				f, err := os.OpenFile(c.path, c.flags, 0)
				if err := errors.Join(err, os.Chown(c.path, 0, 4242), os.Chmod(c.path, c.denied)); err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if err := c.look(t.Context(), user, f); !errors.Is(err, fs.ErrPermission) {
					t.Errorf("%s with mode %o: %v, want that it is refused", c.path, c.denied, err)
				}
				if err := os.Chmod(c.path, c.given); err != nil {
					t.Fatal(err)
				}
				if err := c.look(t.Context(), user, f); err != nil {
					t.Errorf("%s with mode %o: %v", c.path, c.given, err)
				}
				if err := c.look(t.Context(), User{UID: 64055, GID: 64055}, f); !errors.Is(err, fs.ErrPermission) {
					t.Errorf("%s without the group: %v, want that it is refused", c.path, err)
				}
			}
		})
	}
}

func TestTheHookIsInstalledWithoutAWordOfWhoAsks(t *testing.T) {
	var installed atomic.Int32
	var fail atomic.Pointer[os.PathError]
	socket := serving(t, func(ctx context.Context, l *net.UnixListener, log *slog.Logger) error {
		return ServeHook(ctx, l, func() error {
			installed.Add(1)
			if err := fail.Load(); err != nil {
				return err
			}
			return nil
		}, log)
	})
	if err := InstallHook(t.Context(), socket); err != nil || installed.Load() != 1 {
		t.Errorf("installed %d times, %v", installed.Load(), err)
	}
	fail.Store(&os.PathError{Op: "open", Path: "/etc/libvirt/hooks/qemu.d/volferry-guard", Err: unix.EROFS})
	if err := InstallHook(t.Context(), socket); !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "volferry-guard") {
		t.Errorf("a hook that was not installed: %v", err)
	}
	if _, _, err := ask(t.Context(), socket, request{Call: callConnect}, nil); err == nil {
		t.Error("it answers another call")
	}
}
