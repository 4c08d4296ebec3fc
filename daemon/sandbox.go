// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/service"
)

// The environment of the packaged unit says by which sockets it is done what the unit may
// not do. It is no setting: without the unit the daemon does it itself.
const (
	envPrivileged = "VOLFERRYD_PRIVILEGED"
	envDialer     = "VOLFERRYD_DIALER"
)

// serveBeside is what runs beside the daemon, one of the two programs, until it is told to
// stop.
func serveBeside(ctx context.Context, command string, args []string, log *slog.Logger) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	listener, err := service.OnlySocket()
	if err != nil {
		return err
	}
	if command == "privileged" {
		return sandbox.ServePrivileged(ctx, listener, log)
	}
	return sandbox.ServeDialer(ctx, listener, func() (string, error) { return addressOfRegistry(args) }, log)
}

// addressOfRegistry reads the configuration, as it is by now.
func addressOfRegistry(args []string) (string, error) {
	cfg, err := loadConfig(args, io.Discard)
	if errors.Is(err, os.ErrPermission) {
		return "", fmt.Errorf("the dialer has no right to read where the registry is: %w; chmod 0644, there is no secret in it", err)
	}
	if err != nil {
		return "", err
	}
	if !cfg.overTLS() {
		return "", fmt.Errorf("the registry is %s, which needs no dialer; restart volferryd", cfg.Registry)
	}
	return client.Address(cfg.Registry)
}

// privileged makes the calls that take CAP_SYS_ADMIN.
func privileged() sandbox.Privileged { return sandbox.Privileged{Socket: os.Getenv(envPrivileged)} }

// dialing is how a registry on another machine is connected to.
func dialing() client.Setting {
	socket := os.Getenv(envDialer)
	if socket == "" {
		return client.DialedBy(nil)
	}
	return client.DialedBy(func(ctx context.Context) (net.Conn, error) { return sandbox.Dial(ctx, socket) })
}
