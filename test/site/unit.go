// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unitVar names a unit of volferryd, as the package installs it. Where it is set, systemd
// starts the daemons of hosts, each under a unit like it: what the sandbox keeps from a
// daemon is kept from them.
const unitVar = "VOLFERRY_UNIT"

// runtimeUnits is where systemd looks for units that are gone after a reboot.
const runtimeUnits = "/run/systemd/system"

// service is a daemon that systemd runs.
type service struct {
	name    string // of its unit
	log     string
	process *os.Process   // nil if it did not get ready
	exited  chan struct{} // closed when it is gone
}

// startService gives the host in dir a unit like the shipped one, with these arguments and
// its log appended to a file. The program is the one that the shipped unit names. untilReady
// starts it.
func startService(ctx context.Context, shipped, dir, log string, env []string, args ...string) (*service, error) {
	s := &service{name: "volferryd-" + strings.ReplaceAll(strings.Trim(dir, "/"), "/", "-") + ".service", log: log, exited: make(chan struct{})}
	text, err := os.ReadFile(shipped)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	own, err := unitLike(string(text), log, env, args)
	if err != nil {
		return nil, fmt.Errorf("start %s: %s: %w", s.name, shipped, err)
	}
	s.settle() // one that was killed may not be dead for systemd yet
	if err := os.WriteFile(filepath.Join(runtimeUnits, s.name), []byte(own), 0o644); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	if _, err := systemctl(ctx, "daemon-reload"); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	return s, nil
}

// unitLike is the shipped unit for a host of a test. What is added at its end is what a
// drop-in of an operator could say, but for the sockets: those of the packaged unit are the
// machine's own daemon's.
func unitLike(shipped, log string, env, args []string) (string, error) {
	const command, sockets = "ExecStart=", "Sockets="
	var unit strings.Builder
	var program string
	for line := range strings.Lines(shipped) {
		switch {
		case strings.HasPrefix(line, sockets):
			continue
		case strings.HasPrefix(line, command):
			program = strings.TrimSpace(strings.TrimPrefix(line, command))
		}
		unit.WriteString(line)
	}
	if program == "" || strings.Contains(program, " ") {
		return "", fmt.Errorf("it has no %s with a program alone", command)
	}
	for _, arg := range args {
		program += " " + strings.ReplaceAll(quoted(arg), "$", "$$")
	}
	fmt.Fprintf(&unit, `
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStartPre=
ExecStart=
ExecStart=%s
Restart=no
StandardOutput=append:%s
`, program, strings.ReplaceAll(log, "%", "%%"))
	for _, variable := range env {
		fmt.Fprintf(&unit, "Environment=%s\n", quoted(variable))
	}
	return unit.String(), nil
}

// quoted is a word of a unit file.
func quoted(word string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(word) + `"`
}

// untilReady starts the daemon and returns when systemd has it that it is ready.
func (s *service) untilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	process, err := s.start(ctx)
	if err != nil {
		close(s.exited)
		s.settle()
		return fmt.Errorf("start %s: %w\n%s", s.name, err, tail(s.log))
	}
	s.process = process
	go func() {
		defer close(s.exited)
		_ = process.WithHandle(func(pidfd uintptr) { // there is none of a process that is gone
			untilReadable(int(pidfd))
		})
	}()
	return nil
}

// start starts the unit and returns the daemon's process.
func (s *service) start(ctx context.Context) (*os.Process, error) {
	if _, err := systemctl(ctx, "start", s.name); err != nil {
		return nil, err
	}
	out, err := systemctl(ctx, "show", "--property=MainPID", "--value", s.name)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err == nil && pid == 0 {
		err = errors.New("it has no process any more")
	}
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
}

// untilReadable returns when a file can be read from, as a process can that has ended.
func untilReadable(fd int) {
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// kill kills the daemon with SIGKILL and returns when systemd has ended its children too.
func (s *service) kill() {
	if s.process != nil {
		_ = s.process.Kill() // it may be gone already
	}
	s.stop()
}

// stop has systemd stop the daemon.
func (s *service) stop() {
	s.settle()
	<-s.exited
}

// wait returns when the daemon is gone.
func (s *service) wait(ctx context.Context) error {
	select {
	case <-s.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %s to end: %w", s.name, ctx.Err())
	}
}

// pid is the daemon's process.
func (s *service) pid() int { return s.process.Pid }

// settle has systemd stop what there is of the unit. What it cannot stop, it does not start
// either.
func (s *service) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	_, _ = systemctl(ctx, "stop", s.name) // it fails where the unit was never there
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = child()
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("systemctl %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.String(), nil
}
