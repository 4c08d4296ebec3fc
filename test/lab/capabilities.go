// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// sharedCapabilities is where labs hand on what their libvirtd has asked a QEMU, which takes
// seconds. libvirtd asks again by itself if QEMU, the kernel or itself is another one by then.
func sharedCapabilities() string { return filepath.Join(cacheDir(), "capabilities") }

// capabilitiesIn is where the libvirtd of the lab in dir keeps that.
func capabilitiesIn(dir string) string {
	return filepath.Join(dir, "cache", "qemu", "capabilities")
}

// handOnCapabilities hands on what the libvirtd of the lab in dir has asked, unless the cache is of
// a file system that is read-only, as in a virtual machine.
func handOnCapabilities(dir string) error {
	err := copyCapabilities(capabilitiesIn(dir), sharedCapabilities())
	if errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// copyCapabilities makes what is kept in one directory the content of another. Others may read
// there.
func copyCapabilities(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.xml"))
	if err != nil || len(files) == 0 {
		return err
	}
	err = os.MkdirAll(to, 0o755)
	for _, file := range files {
		if err == nil {
			err = replaceWith(file, filepath.Join(to, filepath.Base(file)))
		}
	}
	if err != nil {
		return fmt.Errorf("hand on what QEMU can do: %w", err)
	}
	return nil
}

// replaceWith makes a file the copy of another, at once.
func replaceWith(file, path string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if before, err := os.ReadFile(path); err == nil && bytes.Equal(before, text) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
