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

// makeDirs makes the directories of the daemon. QEMU can traverse the state directory to reach
// overlays, but not list it.
func makeDirs(cfg *config) error {
	// A directory inside another one must come after it, or MkdirAll would create the outer one
	// with the wrong mode.
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

// sweepDirs removes the temporary files of a daemon that was killed during a write. The caller must
// have the journal open, which makes the state directory its own.
func sweepDirs(cfg *config) error {
	for _, dir := range []string{cfg.StateDir, cfg.guardDir(), cfg.cursorDir(), cfg.auditDir()} {
		if err := atomicfile.Sweep(dir); err != nil {
			return err
		}
	}
	return nil
}

// makeDir makes a directory with exactly this mode, whatever the umask. It does not change an
// existing directory; doctor warns if QEMU cannot traverse it.
func makeDir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrExist) {
		return os.MkdirAll(path, mode) // it refuses a path that is no directory
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// ownDir is a directory of the daemon, with its mode when new, and the bits that would open its
// files to other users of the host.
type ownDir struct {
	path  string
	mode  fs.FileMode
	never fs.FileMode
}

// ownDirs returns the directories of the daemon, outer ones first. This host's directory in a
// shared overlay_dir is included once the host's id is known; the shared directory itself is the
// operator's.
func (c *config) ownDirs() []ownDir {
	dirs := []ownDir{{c.StateDir, 0o711, 0o002}}
	if !c.OverlayDirShared || c.hostID != "" {
		dirs = append(dirs, ownDir{c.overlays(), 0o711, 0o002})
	}
	return append(dirs, []ownDir{
		{c.guardDir(), 0o711, 0o002},
		{c.cursorDir(), 0o700, 0o007},
		{c.auditDir(), 0o700, 0o007},
		{c.SaveDir, 0o700, 0o007}, // the memory of guests
	}...)
}

// missing reports whether the path does not exist.
func (d ownDir) missing() bool {
	_, err := os.Lstat(d.path)
	return errors.Is(err, fs.ErrNotExist)
}

// tooOpen returns the directory's mode, and the bits that it must not have.
func (d ownDir) tooOpen() (has, extra fs.FileMode) {
	info, err := os.Stat(d.path)
	if err != nil || !info.IsDir() {
		return 0, 0 // another check reports the error
	}
	return info.Mode().Perm(), info.Mode().Perm() & d.never
}
