// SPDX-License-Identifier: Apache-2.0

package config

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

// MakeDirs makes the directories of the daemon. Other users can traverse the state directory,
// because QEMU must reach the overlays, but not list it.
func MakeDirs(cfg *Config) error {
	// The outer directory is made before an inner one: otherwise MkdirAll would make the outer one
	// with the wrong mode.
	for _, d := range cfg.OwnDirs() {
		err := MakeDir(d.Path, d.Mode)
		switch {
		case err == nil:
			err = location.CheckWritableDir(d.Path)
		case errors.Is(err, unix.EROFS):
			err = cmp.Or(location.CheckWritable(d.Path), err)
		}
		if err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	return nil
}

// GuardDir is the directory of the guards, which the libvirt hook reads.
func (c *Config) GuardDir() string { return filepath.Join(c.StateDir, "guards") }

// CursorDir is the directory of the cursors of copies.
func (c *Config) CursorDir() string { return filepath.Join(c.StateDir, "cursors") }

// AuditDir is the directory of the events that the registry does not have yet.
func (c *Config) AuditDir() string { return filepath.Join(c.StateDir, "audit") }

// SweepDirs removes the temporary files of a daemon that was killed during a write. The caller
// must have the journal open, so that no other daemon uses the state directory.
func SweepDirs(cfg *Config) error {
	for _, dir := range []string{cfg.StateDir, cfg.GuardDir(), cfg.CursorDir(), cfg.AuditDir()} {
		if err := atomicfile.Sweep(dir); err != nil {
			return err
		}
	}
	return nil
}

// MakeDir makes a directory with exactly this mode, whatever the umask. It does not change an
// existing directory; doctor warns if QEMU cannot traverse it.
func MakeDir(path string, mode os.FileMode) error {
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

// OwnDir is a directory of the daemon. It has the mode for a new directory, and the bits of a mode
// that would open its files to other users.
type OwnDir struct {
	Path  string
	Mode  fs.FileMode
	never fs.FileMode
}

// OwnDirs returns the directories of the daemon, outer ones first. With a shared overlay_dir it
// includes this host's subdirectory once the host's id is known, and not the operator's shared
// directory.
func (c *Config) OwnDirs() []OwnDir {
	dirs := []OwnDir{{c.StateDir, 0o711, 0o002}}
	if !c.OverlayDirShared || c.HostID != "" {
		dirs = append(dirs, OwnDir{c.Overlays(), 0o711, 0o002})
	}
	return append(dirs, []OwnDir{
		{c.GuardDir(), 0o711, 0o002},
		{c.CursorDir(), 0o700, 0o007},
		{c.AuditDir(), 0o700, 0o007},
		{c.SaveDir, 0o700, 0o007},
	}...)
}

// Missing reports whether the path does not exist.
func (d OwnDir) Missing() bool {
	_, err := os.Lstat(d.Path)
	return errors.Is(err, fs.ErrNotExist)
}

// TooOpen returns the directory's mode, and the mode bits that the directory must not have.
func (d OwnDir) TooOpen() (has, extra fs.FileMode) {
	info, err := os.Stat(d.Path)
	if err != nil || !info.IsDir() {
		return 0, 0 // another check reports the error
	}
	return info.Mode().Perm(), info.Mode().Perm() & d.never
}
