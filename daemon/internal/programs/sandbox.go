// SPDX-License-Identifier: Apache-2.0

// Package programs has the programs next to the daemon that do work which the unit denies the
// daemon, and the daemon's access to them.
package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt"
	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/service"
	libvirthook "github.com/volferry/volferry/packaging/libvirt-hook"
)

// The packaged unit sets these environment variables to the sockets of the helpers. Without the
// unit the daemon needs no helpers.
const (
	EnvPrivileged = "VOLFERRYD_PRIVILEGED"
	EnvDialer     = "VOLFERRYD_DIALER"
	EnvConnectors = "VOLFERRYD_CONNECTORS"
	EnvStorage    = "VOLFERRYD_STORAGE"
	envImages     = "VOLFERRYD_IMAGES"
	EnvAccess     = "VOLFERRYD_ACCESS"
	EnvHook       = "VOLFERRYD_HOOK"
	EnvProcesses  = "VOLFERRYD_PROCESSES"
)

const programsTimeout = 30 * time.Second

// RunPrograms makes qemu-img and qemu-storage-daemon run in their own systemd units, if the
// package has these. No other daemon of this state directory may run.
func RunPrograms(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	socket := os.Getenv(envImages)
	if socket == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, programsTimeout)
	defer cancel()
	return qemuimg.RunInUnit(ctx, sandbox.Programs{
		Socket: socket, Lock: filepath.Join(cfg.StateDir, "programs.lock"),
		Unrestricted: sync.OnceFunc(func() {
			log.Warn("this kernel has no Landlock: a program of QEMU, once an image has taken it over, reaches the images of the others that run; Linux 5.13 or newer, with landlock in its lsm=, keeps them apart")
		}),
	})
}

// RunImageProgram runs one QEMU program for the daemon that has connected to the unit's socket.
func RunImageProgram(ctx context.Context) error {
	conn, err := service.OnlyConnection()
	if err != nil {
		return err
	}
	return qemuimg.RunFor(ctx, conn)
}

// ServeBeside runs a helper that serves requests until ctx ends or a signal stops it.
func ServeBeside(ctx context.Context, command string, args []string, log *slog.Logger) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	listener, err := service.OnlySocket()
	if err != nil {
		return err
	}
	switch command {
	case "privileged":
		return sandbox.ServePrivileged(ctx, listener, log)
	case "access":
		return sandbox.ServeAccess(ctx, listener, log)
	case "processes":
		return sandbox.ServeProcesses(ctx, listener, "/proc", log)
	case "hook":
		return sandbox.ServeHook(ctx, listener, func() error { return writeHook(args) }, log)
	case "connectors":
		return sandbox.ServeConnectors(ctx, listener, RunConnectors(args).RunText, log)
	case "storage":
		return sandbox.ServeStorage(ctx, listener, NewStorageHost(args), log)
	}
	return sandbox.ServeDialer(ctx, listener, func() ([]string, error) { return AddressesOutside(args) }, log)
}

// AddressesOutside returns the addresses of the registry and the NBD servers in the present
// configuration.
func AddressesOutside(args []string) ([]string, error) {
	cfg, err := config.Load(args, io.Discard)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("the dialer has no right to read where it may connect to: %w; chmod 0644, there is no secret in it", err)
	}
	if err != nil {
		return nil, err
	}
	if err := config.CheckNBDServers(cfg.NBDServers); err != nil {
		return nil, err
	}
	if !cfg.OverTLS() { // a local registry needs no dialer
		return cfg.NBDServers, nil
	}
	registry, err := client.Addresses(cfg.Registry)
	return slices.Concat(registry, cfg.NBDServers), err
}

// RunConnectors returns a runner for connectors of the present configuration. An attacker who
// controls the daemon can choose a configured pool, but no program.
func RunConnectors(args []string) *connector.Runner {
	return &connector.Runner{Config: func() (string, map[string]connector.PoolConfig, error) {
		cfg, err := config.Load(args, io.Discard)
		if err == nil {
			err = cfg.CheckConnectors()
		}
		if err != nil {
			return "", nil, err
		}
		return cfg.ConnectorDir, cfg.ConnectorPools, nil
	}}
}

// WithConnectors returns the hypervisor with the pools of connectors.
func WithConnectors(h hv.Hypervisor, cfg *config.Config) hv.Hypervisor {
	if len(cfg.ConnectorPools) == 0 {
		return h
	}
	runner := &connector.Runner{Config: func() (string, map[string]connector.PoolConfig, error) {
		return cfg.ConnectorDir, cfg.ConnectorPools, nil
	}}
	host := &pools.Host{Hypervisor: h, Connectors: map[string]string{}, Run: runner.Run, Look: pools.Look}
	for pool, c := range cfg.ConnectorPools {
		host.Connectors[pool] = c.Connector()
	}
	if socket := os.Getenv(EnvConnectors); socket != "" {
		host.Run = func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
			return askConnector(ctx, socket, pool, in)
		}
	}
	return host
}

func askConnector(ctx context.Context, socket, pool string, in connector.Request) (connector.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, connector.RunTimeout(in.Verb))
	defer cancel()
	text, err := json.Marshal(in)
	if err != nil {
		return connector.Answer{}, err
	}
	answered, err := sandbox.Connector(ctx, socket, pool, text)
	switch {
	case err != nil && ctx.Err() != nil:
		return connector.Answer{}, &connector.BrokenError{Verb: in.Verb, Err: ctx.Err()}
	case err != nil:
		return connector.Answer{}, err
	}
	return connector.ReadAnswer(in, answered)
}

// Privileged returns the helper for calls that need CAP_SYS_ADMIN.
func Privileged() sandbox.Privileged { return sandbox.Privileged{Socket: os.Getenv(EnvPrivileged)} }

// Access returns the helper that checks the permissions of QEMU's user.
func Access() sandbox.Access { return sandbox.Access{Socket: os.Getenv(EnvAccess)} }

// Processes returns the helper that reads guests' open files; with nil the daemon reads them
// itself.
func Processes() libvirt.Processes {
	if socket := os.Getenv(EnvProcesses); socket != "" {
		return sandbox.Processes{Socket: socket}
	}
	return nil
}

// InstallHook writes this version's hook at libvirt's path.
func InstallHook(ctx context.Context, guards *guard.Dir) error {
	if socket := os.Getenv(EnvHook); socket != "" {
		return sandbox.InstallHook(ctx, socket)
	}
	return guards.InstallHook(libvirthook.Script)
}

func writeHook(args []string) error {
	cfg, err := config.Load(args, io.Discard)
	if err != nil {
		return err
	}
	err = guard.New(cfg.GuardDir(), cfg.LibvirtHook).InstallHook(libvirthook.Script)
	if errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: the unit lets nobody write there; make the directory first, `systemctl edit volferryd-hook.service`, write ReadWritePaths=-%s in its section [Service], and `systemctl restart volferryd-hook.service`", err, filepath.Dir(cfg.LibvirtHook))
	}
	return err
}

// Dialing returns the setting for connections to a registry on another machine.
func Dialing() client.Setting {
	socket := os.Getenv(EnvDialer)
	if socket == "" {
		return client.DialedBy(nil)
	}
	return client.DialedBy(throughDialer(socket))
}

func throughDialer(socket string) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) { return sandbox.Dial(ctx, socket, address) }
}

func dialServers() nbd.Dial {
	if socket := os.Getenv(EnvDialer); socket != "" {
		return nbd.Dial(throughDialer(socket))
	}
	return nil
}
