// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// sharedOverlays checks overlay_dir_shared: other hosts must see the overlays, and QEMU's locks on
// them.
func (d *Doctor) sharedOverlays() []api.Check {
	const name = "shared overlays"
	if !d.Cfg.OverlayDirShared {
		return nil
	}
	if why := d.Cfg.OverlaysNotShared(); why != "" {
		return []api.Check{{Name: name, Status: "fail", Message: why, Advice: "mount the shared filesystem and restart volferryd, or remove overlay_dir_shared"}}
	}
	if err := locksIn(d.Cfg.Overlays()); err != nil {
		return []api.Check{{Name: name, Status: "fail", Message: err.Error(), Advice: "mount it with locks, or remove overlay_dir_shared"}}
	}
	fs, err := location.FilesystemOf(d.Cfg.Overlays())
	if err != nil {
		return []api.Check{{Name: name, Status: "fail", Message: err.Error(), Advice: "make the directory, or set overlay_dir"}}
	}
	if option := fs.LocksHereOnly(); option != "" {
		return []api.Check{{
			Name: name, Status: "fail", Message: fmt.Sprintf("%s is mounted with %s: other hosts do not see locks there", d.Cfg.OverlayDir, option),
			Advice: "mount it without " + option,
		}}
	}
	return []api.Check{ok(name, fmt.Sprintf("%s is on %s, and a lock there excludes a second descriptor", d.Cfg.Overlays(), fs.Kind))}
}

func locksIn(dir string) (err error) {
	first, err := os.CreateTemp(dir, ".volferry-lock-*")
	if err != nil {
		return fmt.Errorf("try locks in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, first.Close(), os.Remove(first.Name())) }()
	second, err := os.OpenFile(filepath.Clean(first.Name()), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("try locks in %s: %w", dir, err)
	}
	defer func() { _ = second.Close() }()
	return lockExcludes(first, second)
}

func lockExcludes(first, second *os.File) error {
	if err := tryLock(first); err != nil {
		return fmt.Errorf("%s cannot be locked: %w", first.Name(), err)
	}
	err := tryLock(second)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s cannot be locked: %w", second.Name(), err)
	}
	return fmt.Errorf("two descriptors of %s have the same lock at once: locks do not work there", first.Name())
}

func tryLock(f *os.File) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}
