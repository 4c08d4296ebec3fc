// SPDX-License-Identifier: Apache-2.0

package main

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

// The packaged unit's environment has the sockets of the helpers that do what the unit forbids.
// These are no settings: without the unit the daemon needs no helpers.
const (
	envPrivileged = "VOLFERRYD_PRIVILEGED"
	envDialer     = "VOLFERRYD_DIALER"
	envConnectors = "VOLFERRYD_CONNECTORS"
	envStorage    = "VOLFERRYD_STORAGE"
	envImages     = "VOLFERRYD_IMAGES"
	envAccess     = "VOLFERRYD_ACCESS"
	envHook       = "VOLFERRYD_HOOK"
	envProcesses  = "VOLFERRYD_PROCESSES"
)

// programsTimeout bounds how long the killed QEMU programs of the previous daemon may take to end.
const programsTimeout = 30 * time.Second

// runPrograms runs QEMU's programs in their own units, if the package has them. No other daemon of
// this state directory may run.
func runPrograms(ctx context.Context, cfg *config, log *slog.Logger) error {
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

// runImageProgram runs one QEMU program for the daemon, which has connected for that.
func runImageProgram(ctx context.Context) error {
	conn, err := service.OnlyConnection()
	if err != nil {
		return err
	}
	return qemuimg.RunFor(ctx, conn)
}

// serveBeside runs a helper that serves several requests until it is told to stop.
func serveBeside(ctx context.Context, command string, args []string, log *slog.Logger) error {
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
		return sandbox.ServeConnectors(ctx, listener, runConnectors(args).RunText, log)
	case "storage":
		return sandbox.ServeStorage(ctx, listener, newStorageHost(args), log)
	}
	return sandbox.ServeDialer(ctx, listener, func() ([]string, error) { return addressesOutside(args) }, log)
}

// addressesOutside reads the addresses of the registry and the NBD servers from the present
// configuration.
func addressesOutside(args []string) ([]string, error) {
	cfg, err := loadConfig(args, io.Discard)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("the dialer has no right to read where it may connect to: %w; chmod 0644, there is no secret in it", err)
	}
	if err != nil {
		return nil, err
	}
	if err := checkNBDServers(cfg.NBDServers); err != nil {
		return nil, err
	}
	if !cfg.overTLS() { // a local registry needs no dialer
		return cfg.NBDServers, nil
	}
	registry, err := client.Addresses(cfg.Registry)
	return slices.Concat(registry, cfg.NBDServers), err
}

// runConnectors runs connectors by the present configuration: an attacker who controls the daemon
// can name its pools, but no program.
func runConnectors(args []string) *connector.Runner {
	return &connector.Runner{Config: func() (string, map[string]connector.PoolConfig, error) {
		cfg, err := loadConfig(args, io.Discard)
		if err == nil {
			err = cfg.checkConnectors()
		}
		if err != nil {
			return "", nil, err
		}
		return cfg.ConnectorDir, cfg.ConnectorPools, nil
	}}
}

// withConnectors returns the hypervisor with the pools of connectors.
func withConnectors(h hv.Hypervisor, cfg *config) hv.Hypervisor {
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
	if socket := os.Getenv(envConnectors); socket != "" {
		host.Run = func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
			return askConnector(ctx, socket, pool, in)
		}
	}
	return host
}

// askConnector has `volferryd connectors` run a verb.
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

// privileged returns the helper for calls that need CAP_SYS_ADMIN.
func privileged() sandbox.Privileged { return sandbox.Privileged{Socket: os.Getenv(envPrivileged)} }

// access returns the helper that checks the permissions of QEMU's user.
func access() sandbox.Access { return sandbox.Access{Socket: os.Getenv(envAccess)} }

// processes returns the helper that reads guests' open files; nil is this process.
func processes() libvirt.Processes {
	if socket := os.Getenv(envProcesses); socket != "" {
		return sandbox.Processes{Socket: socket}
	}
	return nil
}

// installHook writes this version's hook at libvirt's path.
func installHook(ctx context.Context, guards *guard.Dir) error {
	if socket := os.Getenv(envHook); socket != "" {
		return sandbox.InstallHook(ctx, socket)
	}
	return guards.InstallHook(libvirthook.Script)
}

// writeHook does that for the daemon, by the present configuration.
func writeHook(args []string) error {
	cfg, err := loadConfig(args, io.Discard)
	if err != nil {
		return err
	}
	err = guard.New(cfg.guardDir(), cfg.LibvirtHook).InstallHook(libvirthook.Script)
	if errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: the unit lets nobody write there; make the directory first, `systemctl edit volferryd-hook.service`, write ReadWritePaths=-%s in its section [Service], and `systemctl restart volferryd-hook.service`", err, filepath.Dir(cfg.LibvirtHook))
	}
	return err
}

// dialing returns the setting for connections to a registry on another machine.
func dialing() client.Setting {
	socket := os.Getenv(envDialer)
	if socket == "" {
		return client.DialedBy(nil)
	}
	return client.DialedBy(throughDialer(socket))
}

// throughDialer connects to an address through the dialer at a socket.
func throughDialer(socket string) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) { return sandbox.Dial(ctx, socket, address) }
}

// dialServers returns the function that connects to NBD servers over TCP; nil if this process has a
// network.
func dialServers() nbd.Dial {
	if socket := os.Getenv(envDialer); socket != "" {
		return nbd.Dial(throughDialer(socket))
	}
	return nil
}
