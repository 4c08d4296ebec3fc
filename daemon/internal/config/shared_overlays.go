// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/location"
)

// checkSharedOverlayDir refuses a directory that cannot be a mount that other hosts see. The
// daemon never creates this directory: without the mount, a new one would keep guests' writes only
// on this host.
func checkSharedOverlayDir(dir, stateDir string) error {
	if filepath.Clean(dir) == filepath.Join(stateDir, "overlays") {
		return fmt.Errorf("overlay_dir_shared is set, and overlay_dir is %s, in the state directory of this host; set overlay_dir to a mount that other hosts see at the same path", dir)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("overlay_dir_shared is set, and overlay_dir cannot be looked at; mount it: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("overlay_dir %s is no directory", dir)
	}
	return nil
}

func notShared(dir string) string {
	fs, err := location.FilesystemOf(dir)
	switch {
	case err != nil:
		return fmt.Sprintf("overlay_dir_shared is set, and nobody knows on what overlay_dir %s is: %v", dir, err)
	case fs.Local():
		return fmt.Sprintf("overlay_dir_shared is set, and overlay_dir %s is on %s, which no other host sees", dir, fs.Kind)
	}
	return ""
}
