// SPDX-License-Identifier: Apache-2.0

package power

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/power/tape"
)

// insideVar is set in the process that runs the tests.
const insideVar = "VOLFERRY_POWER_INSIDE"

// TestMain runs the tests in a mount namespace of their own. A disk is mounted and unmounted many
// times a minute: a namespace that another test makes at that moment would have a copy, and the
// disk would stay in use.
func TestMain(m *testing.M) {
	tape.Serve()
	if os.Geteuid() != 0 { // they will say that they need root
		os.Exit(m.Run())
	}
	if os.Getenv(insideVar) == "" {
		os.Exit(inside())
	}
	if err := dropForeignMounts(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// inside runs this program again in a namespace of its own and returns its exit status.
func inside() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // it ends when we do
	cmd.Env = append(os.Environ(), insideVar+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// dropForeignMounts unmounts, in this namespace alone, what other tests have mounted: our copies
// would keep it in use.
func dropForeignMounts() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		at := strings.Fields(line)[1]
		if strings.HasPrefix(at, filepath.Clean(os.TempDir())+"/") {
			_ = unix.Unmount(at, unix.MNT_DETACH) // it may have gone with one above it
		}
	}
	return nil
}
