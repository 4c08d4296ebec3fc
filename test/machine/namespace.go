// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace, for as long as a process in it lives, which dies
// with this one.
type namespace struct {
	holder *exec.Cmd
}

// newNamespace makes a network namespace in which only the loopback is up.
func newNamespace(ctx context.Context) (*namespace, error) {
	host, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	n := &namespace{holder: exec.Command("unshare", "--net", "sleep", "infinity")} //nolint:noctx // it outlives the call
	n.holder.SysProcAttr = ours()
	if err := n.holder.Start(); err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	if !poll(ctx, time.Minute, func() bool {
		own, err := os.Readlink(n.path())
		return err == nil && own != host
	}) {
		return nil, errors.Join(errors.New("make network namespace: it does not come"), n.close())
	}
	if err := n.run(ctx, "ip", "link", "set", "lo", "up"); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *namespace) pid() string { return fmt.Sprint(n.holder.Process.Pid) }

func (n *namespace) path() string { return "/proc/" + n.pid() + "/ns/net" }

// run runs a program of the host in the namespace.
func (n *namespace) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + n.path(), "--"}, args...)...)
	cmd.SysProcAttr = ours()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s in network namespace: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// close ends the namespace; the kernel removes what is in it.
func (n *namespace) close() error {
	if err := n.holder.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("remove network namespace: %w", err)
	}
	_ = n.holder.Wait() // it was killed
	return nil
}

// ours makes a program die with us, and keeps an interrupt from the terminal to us
// alone, who know in which order to end things.
func ours() *unix.SysProcAttr {
	return &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
}

// poll calls done every few milliseconds until it returns true, or until the time is
// up, and reports which.
func poll(ctx context.Context, timeout time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
