// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kernel is one that is installed in a root.
type kernel struct {
	image   string // its path
	modules string // the directory of its modules
}

// kernelOf finds the kernel of a root.
func kernelOf(root string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(images) == 0 {
		return kernel{}, errors.Join(err, fmt.Errorf("there is no kernel below %s; run test/vm/install.sh", root))
	}
	slices.Sort(images)
	image := images[len(images)-1]
	release := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
	return kernel{image, filepath.Join(root, "lib", "modules", release)}, nil
}

// bootModules are what the first program needs to reach the root, the disks and its port.
var bootModules = []string{"virtio_pci", "9p", "9pnet_virtio", "overlay", "virtio_console", "virtio_blk"}

// moduleFiles finds the files of bootModules, each after those it depends on, by the list that
// depmod has made.
func moduleFiles(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("list modules: %w", err)
	}
	needs := make(map[string][]string) // the last to be loaded first
	for line := range strings.Lines(string(text)) {
		module, others, _ := strings.Cut(line, ":")
		needs[strings.TrimSuffix(filepath.Base(module), ".ko")] = append([]string{module}, strings.Fields(others)...)
	}
	var files []string
	for _, name := range bootModules {
		for _, file := range slices.Backward(needs[name]) { // none: it is built in
			if file = filepath.Join(dir, file); !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files, nil
}
