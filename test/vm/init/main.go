// SPDX-License-Identifier: Apache-2.0

// Command init is the first program of a virtual machine of package vm: it puts the root
// together, runs the command, says how that ended, and turns the machine off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab/initrd"
	"github.com/volferry/volferry/test/vm/boot"
)

func main() {
	status, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "init: FATAL:", err)
	} else if err := report(status); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

// run returns the exit status of the command, or why it was not run.
func run() (int, error) {
	text, err := os.ReadFile(boot.PlanFile)
	if err != nil {
		return 0, fmt.Errorf("read the plan: %w", err)
	}
	var plan boot.Plan
	if err := json.Unmarshal(text, &plan); err != nil {
		return 0, fmt.Errorf("read the plan: %w", err)
	}
	if err := mount("proc", "/proc", "proc", ""); err != nil {
		return 0, err
	}
	if err := initrd.LoadModules(boot.ModulesDir); err != nil {
		return 0, err
	}
	if err := enterRoot(plan.Shares); err != nil {
		return 0, err
	}
	if plan.Systemd {
		return 0, becomeSystemd(plan)
	}
	cmd := exec.Command(plan.Command[0], plan.Command[1:]...) //nolint:noctx // the machine ends with it
	cmd.Env = append([]string{"PATH=" + path, "HOME=/root"}, plan.Env...)
	cmd.Dir = plan.Dir
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(1, exit.ExitCode()), nil
	}
	return 0, err
}

// report says how the command has ended.
func report(status int) error {
	port, err := exitPort()
	if err != nil {
		return err
	}
	return os.WriteFile(port, []byte(strconv.Itoa(status)), 0)
}
