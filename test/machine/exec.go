// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ExecError is a program in a machine that did not exit with 0.
type ExecError struct {
	Machine string
	Args    []string
	Exit    int
	Stdout  string
	Stderr  string
}

func (e *ExecError) Error() string {
	return fmt.Sprintf("%s: %s: exit status %d\n%s%s", e.Machine, strings.Join(e.Args, " "), e.Exit, e.Stdout, e.Stderr)
}

// Exec runs a program in the machine, which runs, as root in /, and returns its standard
// output. The error is an *ExecError if it did not exit with 0.
func (m *Machine) Exec(ctx context.Context, program string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := m.Command(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = &ExecError{
			Machine: m.Name, Args: append([]string{program}, args...), Exit: exit.ExitCode(),
			Stdout: stdout.String(), Stderr: stderr.String(),
		}
	}
	return stdout.String(), err
}

// Script runs the lines of a shell script in the machine, as Exec does. The first that
// fails ends it.
func (m *Machine) Script(ctx context.Context, script string) (string, error) {
	return m.Exec(ctx, "sh", "-e", "-c", script)
}

// Command is a program that is to run in the machine, which runs. When its context ends
// it is killed there.
func (m *Machine) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	enter := []string{
		"--target", strconv.Itoa(m.leader), "--all", "--wdns=/", "--", "setpriv", "--pdeathsig", "KILL",
		"env", "--ignore-environment", "HOME=/root", "LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", program,
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	cmd.SysProcAttr = ours()
	cmd.WaitDelay = 10 * time.Second // for a daemon that keeps the standard output
	return cmd
}

// Journal is what journalctl says with these arguments, of the machine as it is or was.
func (m *Machine) Journal(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "journalctl", append([]string{"--directory", m.Path("/var/log/journal"), "--no-pager"}, args...)...)
	cmd.SysProcAttr = ours()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("read journal of machine %s: %w: %s", m.Name, err, out)
	}
	return string(out), nil
}
