// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// sourceDir is the directory of this package's sources. The lab runs from a
// checkout only: it builds the guest's program from there.
func sourceDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

// cacheDir holds what is downloaded once: VOLFERRY_LAB_CACHE, or .cache/lab at
// the top of the repository. install.sh has the same default.
func cacheDir() string {
	if dir := os.Getenv("VOLFERRY_LAB_CACHE"); dir != "" {
		return dir
	}
	return filepath.Join(sourceDir(), "..", "..", ".cache", "lab")
}

// EnsurePackages installs what the lab lacks, and fetches the guests' kernel.
// It is quick where everything is there. It needs Debian, and root and the
// network if anything is missing.
func EnsurePackages(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(sourceDir(), "install.sh"))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	// A package manager is to be asked, not killed; and by us alone.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("install what the lab needs: %w", err)
	}
	return nil
}
