// SPDX-License-Identifier: Apache-2.0

package initrd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// LoadModules loads the kernel modules in dir in the order of their names,
// which whoever made the image chose to be the order of their dependencies.
func LoadModules(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list modules: %w", err)
	}
	for _, e := range entries {
		if err := loadModule(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("load %s: %w", e.Name(), err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = unix.FinitModule(int(f.Fd()), "", 0)
	if errors.Is(err, unix.EEXIST) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
