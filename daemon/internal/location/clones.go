// SPDX-License-Identifier: Apache-2.0

package location

import (
	"os"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// CloneOf returns a file in a pool of files that is, by its header, a linked clone over the image
// at path, or "". It reads no file if skip returns true for it: a guest can write anything into a
// raw image. It misses indirect clones, and clones outside of pools, on other hosts, and in a pool
// that does not answer.
func CloneOf(pools []hv.PoolInfo, path string, skip func(file string) bool) string {
	place := PlaceOf(path)
	for _, p := range pools {
		if !p.Active || !HoldsFiles(p) || p.Path == "" {
			continue
		}
		if _, err := Stat(p.Path); err != nil {
			continue // ReadDir would hang too
		}
		entries, err := os.ReadDir(p.Path)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			file := filepath.Join(p.Path, entry.Name())
			if !entry.Type().IsRegular() || skip(file) {
				continue
			}
			if place.isBelow(file) {
				return file
			}
		}
	}
	return ""
}

func (p Place) isBelow(file string) bool {
	backing, _, err := qemuimg.ReadBacking(file)
	if err != nil || backing == "" {
		return false
	}
	for _, path := range backingPaths(file, backing) {
		if same, err := p.Is(path); err == nil && same {
			return true
		}
	}
	return false
}
