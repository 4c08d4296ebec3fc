// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// The directories of libvirt's files. Modular daemons use the same ones.
const (
	// DefaultDefinitionsDir is the default of Config.DefinitionsDir.
	DefaultDefinitionsDir = "/etc/libvirt/qemu"
	// DefaultStateDir is the default of Config.StateDir.
	DefaultStateDir = "/var/lib/libvirt/qemu"
)

// kept is a set of libvirt directories with files that a journal relies on. libvirt syncs a file
// before it renames the file, but never the directory: a power cut may restore an old definition
// while a journal on another filesystem records the new one.
type kept uint8

const (
	keptDefinitions kept = 1 << iota
	keptAutostart
	keptSaves
	keptSnapshots
	keptCheckpoints
	keptNVRAM

	keptNothing kept = 0
	keptAll          = keptDefinitions | keptAutostart | keptSaves | keptSnapshots | keptCheckpoints | keptNVRAM
)

type library struct {
	definitions, state string // directories; see Config
	sync               func(dir string) error
	syncAll            func(dir string) error

	// syncing is held during a sync: a caller that finds nothing to sync may rely on another
	// caller's finished sync.
	syncing sync.Mutex

	mu      sync.Mutex
	changed kept
	// doubtful directories may change at any time: libvirtd may still work on a call without an
	// answer.
	doubtful kept
}

// newLibrary makes a library that counts all files of libvirt as changed: the previous daemon may
// have died before it synced.
func newLibrary(definitions, state string) *library {
	l := &library{definitions: definitions, state: state, changed: keptAll, sync: syncFile, syncAll: syncFilesystem}
	if l.definitions == "" {
		l.definitions = DefaultDefinitionsDir
	}
	if l.state == "" {
		l.state = DefaultStateDir
	}
	return l
}

// note records that a call with the result err may have changed these files of libvirt. After an
// unknown outcome the files count as changed until the daemon restarts.
func (l *library) note(files kept, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed |= files
	if errors.Is(err, hv.ErrUnavailable) {
		l.doubtful |= files
	}
}

// MakeDurable syncs the libvirt files that calls of this connection have changed, or may have
// changed with an unknown outcome. The first call after New syncs all. After an error it must be
// called again.
func (l *library) MakeDurable() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	due := l.take()
	if due == keptNothing {
		return nil
	}
	err := l.syncDirs(due)
	if err != nil {
		l.note(due, nil)
	}
	return err
}

func (l *library) take() (due kept) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due = l.changed | l.doubtful
	l.changed = keptNothing
	return due
}

// syncDirs syncs the existing directories. If the directory of definitions is missing, it syncs
// the filesystems that probably have libvirt's files.
func (l *library) syncDirs(due kept) error {
	if _, err := os.Stat(l.definitions); err != nil {
		return errors.Join(l.syncAll("/etc"), l.syncAll("/var/lib"))
	}
	var errs []error
	for _, dir := range l.dirs(due) {
		if err := l.sync(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("sync what libvirt keeps in %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

func (l *library) dirs(of kept) []string {
	var paths []string
	for _, dir := range []struct {
		is   kept
		path string
	}{
		{keptDefinitions, l.definitions},
		{keptAutostart, filepath.Join(l.definitions, "autostart")},
		{keptSaves, filepath.Join(l.state, "save")},
		{keptSnapshots, filepath.Join(l.state, "snapshot")},
		{keptCheckpoints, filepath.Join(l.state, "checkpoint")},
		{keptNVRAM, l.nvram()},
	} {
		if of&dir.is != 0 {
			paths = append(paths, dir.path)
		}
	}
	return paths
}

func (l *library) nvram() string { return filepath.Join(l.state, "nvram") }

func syncFilesystem(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync what libvirt keeps: %w", err)
	}
	if err := errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()); err != nil {
		return fmt.Errorf("sync what libvirt keeps: sync filesystem of %s: %w", path, err)
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("make durable: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("make durable: %w", err)
	}
	return nil
}
