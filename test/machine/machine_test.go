// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/volferry/volferry/test/lab"
)

// machineDirVar has TestMain boot a machine in this directory and wait to be killed.
const machineDirVar = "VOLFERRY_MACHINE_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(machineDirVar); dir != "" {
		if err := bootAndWait(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	m.Run()
}

func bootAndWait(dir string) error {
	ctx := context.Background()
	m, err := New(ctx, dir, Config{Name: "doomed"})
	if err != nil {
		return err
	}
	if err := m.Boot(ctx); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, m.leader, m.namespace.pid())
	select {}
}

// leftToTestHosts skips a test that make test has no time for.
func leftToTestHosts(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: left to make test-hosts")
	}
}

// mustExec runs a program in a machine, which must succeed, and returns what it printed.
func mustExec(t *testing.T, m *Machine, program string, args ...string) string {
	t.Helper()
	out, err := m.Exec(t.Context(), program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func TestMachinesAreHosts(t *testing.T) {
	leftToTestHosts(t)
	shared := filepath.Join(lab.TempDir(t), "shared")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	binds := map[string]string{"/srv/shared": shared}
	a := Start(t, Config{Name: "alpha", Binds: binds, Hosts: map[string]string{"beta.example": "192.0.2.2"}, LoopDevices: true})
	b := Start(t, Config{Name: "beta", Binds: binds})
	Connect(t, map[*Machine]string{a: "192.0.2.1/24", b: "192.0.2.2/24"})

	t.Run("with a name and services of their own", func(t *testing.T) {
		if got := mustExec(t, a, "hostname"); got != "alpha" {
			t.Errorf("the machine alpha is called %s", got)
		}
		if ids := mustExec(t, a, "cat", "/etc/machine-id"); len(ids) != 32 || ids == mustExec(t, b, "cat", "/etc/machine-id") {
			t.Errorf("two machines have the machine id %q", ids)
		}
		mustExec(t, a, "systemd-run", "--unit=only-here", "sleep", "infinity")
		mustExec(t, a, "systemctl", "is-active", "only-here.service")
		if _, err := b.Exec(t.Context(), "systemctl", "is-active", "only-here.service"); err == nil {
			t.Error("a service of one machine runs in the other")
		}
		mustExec(t, b, "systemctl", "restart", "systemd-journald.service")
		mustExec(t, a, "systemctl", "is-active", "only-here.service")
		if got := mustExec(t, a, "virsh", "-c", "qemu:///system", "list", "--all", "--name"); got != "" {
			t.Errorf("a new libvirtd has the domains %q", got)
		}
	})
	t.Run("which keep devices from units that say so", func(t *testing.T) {
		mustExec(t, a, "systemd-run", "--quiet", "--wait", "--property=DevicePolicy=closed", "dd", "if=/dev/zero", "count=1", "of=/dev/null")
		if _, err := a.Exec(t.Context(), "systemd-run", "--quiet", "--wait", "--property=DevicePolicy=closed", "dd", "if=/dev/loop-control", "count=0"); err == nil {
			t.Error("a unit opens a device that it may not")
		}
		mustExec(t, a, "systemd-run", "--quiet", "--wait", "dd", "if=/dev/loop-control", "count=0")
	})
	t.Run("on a network that is theirs alone", func(t *testing.T) {
		mustExec(t, b, "systemd-run", "--unit=echo", "systemd-socket-activate", "--listen=7", "--inetd", "--accept", "cat")
		var got string
		if !poll(t.Context(), bootTimeout, func() bool {
			got, _ = a.Exec(t.Context(), "bash", "-c", "exec 3<>/dev/tcp/beta.example/7 && echo hello >&3 && head -n 1 <&3")
			return got == "hello\n"
		}) {
			t.Errorf("from the other machine came %q", got)
		}
		links := mustExec(t, a, "ip", "-brief", "address")
		if n := len(strings.Split(links, "\n")); n != 2 || !strings.Contains(links, "192.0.2.1/24") {
			t.Errorf("a machine has the interfaces\n%s", links)
		}
	})
	t.Run("with shared storage", func(t *testing.T) {
		mustExec(t, a, "touch", "/srv/shared/here")
		mustExec(t, b, "test", "-e", "/srv/shared/here")
	})
	t.Run("and what they have on disk outlives a reboot and a power cut", func(t *testing.T) {
		if _, err := a.Script(t.Context(), "echo text >/etc/kept; echo text >/var/lib/kept; echo text >/run/gone"); err != nil {
			t.Fatal(err)
		}
		if err := a.Reboot(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustExec(t, a, "cat", "/etc/kept", "/var/lib/kept")
		mustExec(t, a, "test", "!", "-e", "/run/gone")
		if err := a.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := a.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustExec(t, a, "cat", "/etc/kept", "/var/lib/kept")
		if boots, err := a.Journal(t.Context(), "--list-boots"); err != nil || len(regexp.MustCompile("[0-9a-f]{32}").FindAllString(boots, -1)) != 3 {
			t.Errorf("the journal has these boots of three, %v:\n%s", err, boots)
		}
	})
}

func TestExecReportsWhatAProgramSaid(t *testing.T) {
	leftToTestHosts(t)
	m := Start(t, Config{Name: "alpha"})
	_, err := m.Script(t.Context(), "echo said; echo complained >&2; exit 7")
	var failed *ExecError
	if !errors.As(err, &failed) || failed.Exit != 7 || failed.Stdout != "said\n" || failed.Stderr != "complained\n" {
		t.Errorf("got %v, want exit status 7 with both outputs", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := m.Command(ctx, "sleep", "4711")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running := func() bool {
		_, err := m.Exec(t.Context(), "pgrep", "--full", "^sleep 4711")
		return err == nil
	}
	if !poll(t.Context(), bootTimeout, running) {
		t.Error("the program never ran")
	}
	cancel()
	_ = cmd.Wait() // it was killed
	if !poll(t.Context(), bootTimeout, func() bool { return !running() }) {
		t.Error("the program outlives its context")
	}
}

// dead reports whether a process has ended, waited for or not.
func dead(pid string) bool {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	return err != nil || strings.Contains(string(status), "\nState:\tZ")
}

// What is left of the machines of a killed test goes when the next one begins.
func TestSweepRemovesTheMachinesOfAKilledTest(t *testing.T) {
	leftToTestHosts(t)
	Require(t)
	dir := filepath.Join(lab.TempDir(t), "doomed")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), machineDirVar+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Errorf("the child said %q, %v", line, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait() // it was killed
	if _, err := lab.Sweep(); err != nil {
		t.Error(err)
	}
	if err := sweepGroups(); err != nil {
		t.Error(err)
	}
	for pid := range strings.FieldsSeq(line) {
		if !poll(t.Context(), bootTimeout, func() bool { return dead(pid) }) {
			t.Errorf("process %s of the machine or its network lives", pid)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the machine is still there: %v", err)
	}
	parents, err := cgroupParents()
	if err != nil {
		t.Fatal(err)
	}
	for _, parent := range parents {
		if left, _ := filepath.Glob(filepath.Join(parent, fmt.Sprintf("%s%d-*", cgroupPrefix, child.Process.Pid))); len(left) > 0 {
			t.Errorf("cgroups are left: %v", left)
		}
	}
}
