// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/test/lab"
)

// Host is one hypervisor: a libvirtd and a volferryd with their state in a
// directory. Methods may be called from one goroutine at a time, but for those
// of Caller, which may be called from any.
type Host struct {
	Caller

	Dir      string
	Name     string
	Libvirtd *lab.Libvirtd
	// Registry is the registry as the daemon is told of it.
	Registry string
	// TLS is the directory of the host's certificate, for a registry over TLS.
	TLS string
	// SharedPools are the pools that other hosts see, too.
	SharedPools []string
	// Metrics is the address of the daemon's metrics, which it has none of where that is empty.
	Metrics string
	// Flags are flags of the daemon besides, which win.
	Flags []string

	daemon daemon
}

// daemon is a volferryd that was started.
type daemon interface {
	// untilReady returns when it is ready to work. It is called once, before all others.
	untilReady(ctx context.Context) error
	// kill kills it with SIGKILL and returns when it is gone.
	kill()
	// stop asks it to end, kills it if it does not, and returns when it is gone.
	stop()
	// wait returns when it is gone.
	wait(ctx context.Context) error
	// pid is its process.
	pid() int
}

// NewHost prepares a host with its state in dir, whose path must be short
// (lab.TempDir), and starts its libvirtd. Bin is the directory of the built
// programs. Close must be called.
func NewHost(ctx context.Context, dir, bin, name string) (*Host, error) {
	h := &Host{Caller: Caller{bin: bin, Socket: filepath.Join(dir, "volferryd.sock")}, Dir: dir, Name: name}
	// QEMU's user passes through to pools and overlays, like everywhere.
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return nil, fmt.Errorf("start host: %w", err)
	}
	virt := filepath.Join(dir, "virt")
	if err := installHook(filepath.Join(virt, "etc", "hooks", "qemu.d"), h.Guards()); err != nil {
		return nil, fmt.Errorf("start host: %w", err)
	}
	l, err := lab.StartLibvirtd(ctx, virt)
	if err != nil {
		return nil, err
	}
	h.Libvirtd = l
	return h, nil
}

// State is the daemon's state directory.
func (h *Host) State() string { return filepath.Join(h.Dir, "state") }

// Overlays and Guards are the directories that are empty when nothing is in
// progress.
func (h *Host) Overlays() string { return filepath.Join(h.State(), "overlays") }

// Guards is where the guards are.
func (h *Host) Guards() string { return filepath.Join(h.State(), "guards") }

// Log is the daemon's log.
func (h *Host) Log() string { return filepath.Join(h.Dir, "volferryd.log") }

// StartDaemon starts the daemon, with these additional variables in its
// environment, and returns when it is ready.
func (h *Host) StartDaemon(ctx context.Context, env ...string) error {
	config, err := emptyConfig(h.Dir)
	if err != nil {
		return err
	}
	args := []string{
		"--config", config, "--socket", h.Socket, "--registry", h.Registry,
		"--state-dir", h.State(), "--overlay-dir", h.Overlays(),
		"--libvirt-socket", h.Libvirtd.Socket, "--libvirt-hook", filepath.Join(h.Libvirtd.HooksDir, "qemu.d", "volferry-guard"),
		"--libvirt-config-dir", filepath.Join(h.Libvirtd.EtcDir, "qemu"), "--libvirt-state-dir", h.Libvirtd.StateDir(),
		"--metrics-listen", cmp.Or(h.Metrics, "off"), "--host-name", h.Name, "--overlay-min-free-bytes", fmt.Sprint(64 << 20),
		"--allowed-paths", h.Dir + ":/dev", // the disks and loop devices of tests are in no pool
	}
	if h.TLS != "" {
		for flag, file := range map[string]string{"--tls-ca": "ca.crt", "--tls-cert": "host.crt", "--tls-key": "host.key"} {
			args = append(args, flag, filepath.Join(h.TLS, file))
		}
	}
	if len(h.SharedPools) > 0 {
		args = append(args, "--shared-pools", strings.Join(h.SharedPools, ","))
	}
	args = append(args, h.Flags...)
	d, err := h.launch(ctx, env, args)
	if err != nil {
		return err
	}
	h.daemon = d
	return d.untilReady(ctx)
}

// launch starts the daemon as our child, or has systemd start it where unitVar says so.
func (h *Host) launch(ctx context.Context, env, args []string) (daemon, error) {
	if shipped := os.Getenv(unitVar); shipped != "" {
		return startService(ctx, shipped, h.Dir, h.Log(), env, args...)
	}
	return start(ctx, filepath.Join(h.bin, "volferryd"), h.Log(), env, args...)
}

// KillDaemon kills the daemon with SIGKILL and returns when it is gone.
func (h *Host) KillDaemon() { h.daemon.kill() }

// StopDaemon asks the daemon to end, and returns when it has.
func (h *Host) StopDaemon() { h.daemon.stop() }

// DaemonPID is the process id of the daemon, once it was started.
func (h *Host) DaemonPID() int { return h.daemon.pid() }

// Use has the programs in the directory bin be those of the host, from their next start
// on.
func (h *Host) Use(bin string) { h.bin = bin }

// DaemonDied returns when the daemon is gone by itself, as at a fault point.
func (h *Host) DaemonDied(ctx context.Context) error { return h.daemon.wait(ctx) }

// Close stops daemon and libvirtd. Guests must be closed before.
func (h *Host) Close() error {
	if h.daemon != nil {
		h.daemon.stop()
	}
	if h.Libvirtd == nil {
		return nil
	}
	return h.Libvirtd.Close()
}

// hookSource is the guard hook in the source tree.
const hookSource = "packaging/libvirt-hook/volferry-guard"

// installHook installs the guard hook as a package would, but for the directory
// that it looks in.
func installHook(hooks, guards string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, hookSource))
	if err != nil {
		return fmt.Errorf("install hook: %w", err)
	}
	const line = "GUARD_DIR=/var/lib/volferry/guards\n"
	if !strings.Contains(string(text), line) {
		return fmt.Errorf("install hook: %s has no line %q", hookSource, line)
	}
	text = []byte(strings.Replace(string(text), line, "GUARD_DIR="+guards+"\n", 1))
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		return fmt.Errorf("install hook: %w", err)
	}
	return os.WriteFile(filepath.Join(hooks, "volferry-guard"), text, 0o755)
}
