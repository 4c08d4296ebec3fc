// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/atomicfile"
)

// makeDirs makes the directories of the daemon. QEMU passes through the state
// directory to overlays, and sees nothing else there.
func makeDirs(cfg *config) error {
	// One after the other: what is in another one comes after it, or it would be made
	// on the way, with the mode of what is in it.
	for _, d := range cfg.ownDirs() {
		err := makeDir(d.path, d.mode)
		switch {
		case err == nil:
			err = location.CheckWritableDir(d.path)
		case errors.Is(err, unix.EROFS):
			err = cmp.Or(location.CheckWritable(d.path), err)
		}
		if err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	return nil
}

func (c *config) guardDir() string  { return filepath.Join(c.StateDir, "guards") }
func (c *config) cursorDir() string { return filepath.Join(c.StateDir, "cursors") }
func (c *config) auditDir() string  { return filepath.Join(c.StateDir, "audit") }

// sweepDirs removes what a daemon that was killed while it wrote a small file has left. It
// is for who has the journal, and with it the state directory for itself.
func sweepDirs(cfg *config) error {
	for _, dir := range []string{cfg.StateDir, cfg.guardDir(), cfg.cursorDir(), cfg.auditDir()} {
		if err := atomicfile.Sweep(dir); err != nil {
			return err
		}
	}
	return nil
}

// makeDir makes a directory with just this mode, whatever the umask is. Of one that is
// there the mode is its owner's: doctor says if QEMU cannot pass.
func makeDir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrExist) {
		return os.MkdirAll(path, mode) // which refuses what is no directory
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// ownDir is a directory of the daemon, with the mode that it is made with and the bits that
// it must never have: what is in it would be open to other users of the host.
type ownDir struct {
	path  string
	mode  fs.FileMode
	never fs.FileMode
}

// ownDirs are the directories of the daemon. One that is in another comes after it. That of the
// overlays in a directory that other hosts see is one of them once the daemon knows which host this
// is; the shared directory itself is the operator's.
func (c *config) ownDirs() []ownDir {
	dirs := []ownDir{{c.StateDir, 0o711, 0o002}}
	if !c.OverlayDirShared || c.hostID != "" {
		dirs = append(dirs, ownDir{c.overlays(), 0o711, 0o002})
	}
	return append(dirs, []ownDir{
		{c.guardDir(), 0o711, 0o002},
		{c.cursorDir(), 0o700, 0o007},
		{c.auditDir(), 0o700, 0o007},
		{c.SaveDir, 0o700, 0o007}, // what guests have in memory
	}...)
}

// missing reports whether there is nothing at the path.
func (d ownDir) missing() bool {
	_, err := os.Lstat(d.path)
	return errors.Is(err, fs.ErrNotExist)
}

// tooOpen returns the bits of the mode that the directory must not have.
func (d ownDir) tooOpen() (has, extra fs.FileMode) {
	info, err := os.Stat(d.path)
	if err != nil || !info.IsDir() {
		return 0, 0 // the first start made it; what is wrong now is said elsewhere
	}
	return info.Mode().Perm(), info.Mode().Perm() & d.never
}
