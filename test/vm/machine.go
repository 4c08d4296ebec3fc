// SPDX-License-Identifier: Apache-2.0

// Package vm runs a program in a virtual machine with a kernel of Debian, for what the kernel of
// this host does not have: device mapper, iSCSI, NVMe over TCP, NFS, and security modules that
// confine programs.
//
// A machine has empty disks, no network but its own loopback, and one command that runs in it:
// with that it ends. Nothing that it writes to its root is left. There are two kinds: Emulated,
// with all of these, and UserMode, which is as fast as this host.
//
// Like package lab it knows QEMU and the kernel, and must not know Volferry.
package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Machine is a kind of virtual machine.
type Machine interface {
	// Run boots a machine, and returns when its command has ended: an ExitError if that failed.
	// What the command and the kernel print goes to out. Dir is an empty directory, for the
	// machine's disks.
	Run(ctx context.Context, dir string, cfg Config, out io.Writer) error
	// Disk is the path in the machine of the disk with this number in Config.DiskBytes, from 0.
	Disk(n int) string
}

// ExitError says that the command has ended, and not well.
type ExitError struct{ Status int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

func (c *Config) memoryMiB() int {
	if c.MemoryMiB == 0 {
		return 3 << 10
	}
	return c.MemoryMiB
}

// exitStatus reads what the machine has said of the end of its command.
func exitStatus(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read how the command ended: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	switch {
	case err != nil:
		return errors.New("the machine has ended without a word on its command")
	case n != 0:
		return &ExitError{n}
	}
	return nil
}

// findCache returns the directory of what an install script made: the value of the variable, or a
// directory of .cache.
func findCache(variable, name, script string) (string, error) {
	dir := os.Getenv(variable)
	if dir == "" {
		dir = filepath.Join(sourceDir(), "..", "..", ".cache", name)
	}
	if _, err := os.Stat(filepath.Join(dir, "stamp")); err != nil || os.Geteuid() != 0 {
		return "", errors.New("the virtual machine needs root privileges and its root; run " + script + " as root")
	}
	return dir, nil
}

// makeDisks makes the files of disks.
func makeDisks(dir string, sizes []int64) (paths []string, err error) {
	for i, bytes := range sizes {
		path := filepath.Join(dir, "disk"+strconv.Itoa(i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return nil, err
		}
		if err := os.Truncate(path, bytes); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// sourceDir is the directory of this package's sources.
func sourceDir() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Dir(here)
}
