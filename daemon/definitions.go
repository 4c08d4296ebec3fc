// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

const (
	defaultLibvirtConfigDir = "/etc/libvirt/qemu"
	libvirtStateDir         = "/var/lib/libvirt/qemu"
)

// libvirtDirs are the directories in which libvirt makes, renames and removes files
// that the journal relies on: definitions and autostart links, and then managed saves,
// snapshots, checkpoints and the variables of UEFI guests. Modular daemons have the same.
func libvirtDirs(configDir string) []string {
	return []string{
		configDir, filepath.Join(configDir, "autostart"),
		filepath.Join(libvirtStateDir, "save"), filepath.Join(libvirtStateDir, "snapshot"),
		filepath.Join(libvirtStateDir, "checkpoint"), filepath.Join(libvirtStateDir, "nvram"),
	}
}

// makeDurable syncs what libvirt keeps. Where its directory is not where it was said to
// be, the filesystems are synced on which it is likely to be; doctor tells of it.
func makeDurable(configDir string) error {
	if _, err := os.Stat(configDir); err == nil {
		return syncDirs(libvirtDirs(configDir), (*os.File).Sync)
	}
	return syncDirs([]string{"/etc", "/var/lib"}, func(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) })
}

// syncDirs syncs those directories that are there. libvirt syncs a file before it
// renames it and never the directory, so that after a power cut a definition may be the
// one of before, with a journal on another filesystem that says otherwise.
func syncDirs(paths []string, sync func(*os.File) error) error {
	var errs []error
	for _, path := range paths {
		dir, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("sync what libvirt keeps: %w", err))
			continue
		}
		if err := errors.Join(sync(dir), dir.Close()); err != nil {
			errs = append(errs, fmt.Errorf("sync what libvirt keeps in %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

func (d *doctor) definitions() api.Check {
	if _, err := os.Stat(d.cfg.LibvirtConfigDir); err != nil {
		return api.Check{
			Name: "definitions", Status: "warn", Message: "libvirt's definitions are not where they are synced: " + err.Error(),
			Advice: "set libvirt_config_dir; until then whole filesystems are synced after each step, which may take long with a guest paused",
		}
	}
	return ok("definitions", "libvirt's definitions are in "+d.cfg.LibvirtConfigDir)
}
