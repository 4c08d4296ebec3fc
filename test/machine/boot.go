// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootTimeout bounds a boot or a shutdown, on a busy host. systemd gives a service 90
// seconds to end.
const bootTimeout = 4 * time.Minute

// powerOff is the signal by which systemd shuts the machine down: SIGRTMIN+4.
const powerOff = syscall.Signal(34 + 4)

// Boot starts the machine, which is off, and returns when systemd has started all units,
// none of which may have failed.
func (m *Machine) Boot(ctx context.Context) error {
	if m.leader != 0 {
		return fmt.Errorf("boot machine %s: it runs", m.Name)
	}
	if err := m.spawn(); err != nil {
		return fmt.Errorf("boot machine %s: %w", m.Name, errors.Join(err, m.Kill()))
	}
	if err := m.untilBooted(ctx); err != nil {
		return fmt.Errorf("boot machine %s: %w", m.Name, errors.Join(err, m.Kill()))
	}
	if err := m.giveDevices(ctx); err != nil {
		return fmt.Errorf("boot machine %s: %w", m.Name, errors.Join(err, m.Kill()))
	}
	return nil
}

// spawn starts systemd-nspawn.
func (m *Machine) spawn() error {
	var err error
	if m.group, err = newGroup(); err != nil {
		return err
	}
	console, err := os.OpenFile(m.console(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	m.nspawn = exec.Command("sh", "-e", "-c", m.group.enter()+`exec systemd-nspawn "$@"`, "sh", //nolint:noctx // it outlives the call
		"--quiet", "--boot", "--directory="+m.Path("/"), "--machine="+m.Name,
		"--register=no", "--keep-unit", "--capability=all", "--network-namespace-path="+m.namespace.path(),
		// No group of system calls that nspawn lets through has these.
		"--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self",
		"--console=pipe", "--link-journal=no", "--resolv-conf=off", "--timezone=off")
	m.nspawn.Stdout, m.nspawn.Stderr = console, console
	m.nspawn.SysProcAttr = ours()
	m.nspawn.SysProcAttr.Pdeathsig = unix.SIGTERM // it shuts the machine down; SIGKILL would leave it running
	if err := m.nspawn.Start(); err != nil {
		return err
	}
	m.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		defer close(exited)
		_ = cmd.Wait() // how it ended is on the console
	}(m.nspawn, m.exited)
	return nil
}

// untilBooted returns when all units of the machine are active.
func (m *Machine) untilBooted(ctx context.Context) error {
	var state string
	settled := poll(ctx, bootTimeout, func() bool {
		if m.off() {
			return true
		}
		if !m.findLeader() {
			return false
		}
		// It fails as long as systemd does not listen, and where a unit has failed.
		out, _ := m.Exec(ctx, "systemctl", "is-system-running", "--wait")
		state = strings.TrimSpace(out)
		return slices.Contains([]string{"running", "degraded", "maintenance", "stopping"}, state)
	})
	switch {
	case state == "running":
		return nil
	case state == "degraded":
		units, _ := m.Exec(context.WithoutCancel(ctx), "systemctl", "list-units", "--failed", "--no-legend", "--plain")
		return fmt.Errorf("units have failed: %s", units)
	case settled:
		return errors.New("systemd ended" + m.consoleTail())
	default:
		return fmt.Errorf("it does not come up (%s)%s", state, m.consoleTail())
	}
}

// findLeader finds PID 1 of the machine, the child of nspawn that is the first of its
// namespace and has become systemd.
func (m *Machine) findLeader() bool {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", m.nspawn.Process.Pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			program, _ := os.Readlink("/proc/" + child + "/exe")
			if filepath.Base(program) != "systemd" {
				continue
			}
			if pid, err := strconv.Atoi(child); err == nil {
				m.leader = pid
				return true
			}
		}
	}
	return false
}

// off reports whether nspawn has ended, and everything in the machine with it.
func (m *Machine) off() bool {
	select {
	case <-m.exited:
		return true
	default:
		return false
	}
}

// Shutdown has systemd stop everything in order and returns when the machine is off.
func (m *Machine) Shutdown(ctx context.Context) error {
	if m.leader == 0 {
		return nil
	}
	if err := unix.Kill(m.leader, powerOff); err != nil {
		return fmt.Errorf("shut down machine %s: %w", m.Name, err)
	}
	select {
	case <-m.exited:
		return m.settle()
	case <-ctx.Done():
		return fmt.Errorf("shut down machine %s: %w%s", m.Name, ctx.Err(), m.consoleTail())
	case <-time.After(bootTimeout):
		return fmt.Errorf("shut down machine %s: it is still not off%s", m.Name, m.consoleTail())
	}
}

// Reboot shuts the machine down and boots it.
func (m *Machine) Reboot(ctx context.Context) error {
	return errors.Join(m.Shutdown(ctx), m.Boot(ctx))
}

// Kill ends everything in the machine at once, as a power cut does, but for the page
// cache, which is the host's: what was written stays written.
func (m *Machine) Kill() error {
	if m.exited == nil {
		return nil
	}
	if m.leader != 0 {
		_ = unix.Kill(m.leader, unix.SIGKILL) // it may be dead
	} else {
		_ = m.nspawn.Process.Signal(unix.SIGTERM) // it takes along what it has started
	}
	select {
	case <-m.exited:
	case <-time.After(bootTimeout):
		return fmt.Errorf("kill machine %s: it lives", m.Name)
	}
	return m.settle()
}

// Close stops the machine as Kill does, and removes it with all that is in it.
func (m *Machine) Close() error {
	if err := errors.Join(m.Kill(), m.namespace.close(), m.release()); err != nil {
		return fmt.Errorf("close machine %s: %w", m.Name, err)
	}
	return nil
}

// settle notes that the machine is off.
func (m *Machine) settle() error {
	m.leader, m.exited = 0, nil
	g := m.group
	m.group = nil
	return g.remove()
}

func (m *Machine) console() string { return filepath.Join(m.dir, "console") }

// consoleTail is the end of the machine's console, for an error message.
func (m *Machine) consoleTail() string {
	data, _ := os.ReadFile(m.console())
	const most = 2000
	return "; console ends: " + strings.TrimSpace(string(data[max(0, len(data)-most):]))
}
