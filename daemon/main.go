// SPDX-License-Identifier: Apache-2.0

// Program volferryd is the daemon of one hypervisor: it manages the block devices of the host's
// instances, moves volumes while guests use them, and serves volferryctl on a Unix socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/programs"
	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/internal/settings"
	"github.com/volferry/volferry/internal/version"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		service.NotifyFailed(err)
		fmt.Fprintf(os.Stderr, "volferryd: %v\n", err)
		os.Exit(settings.ExitStatus(err))
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if slices.Contains(args, "--version") || (len(args) > 0 && args[0] == "version") {
		_, err := fmt.Fprintln(stdout, "volferryd "+version.String()) // it needs no configuration
		return err
	}
	if len(args) > 0 && args[0] == "connector-test" {
		return tryConnector(ctx, args[1:], stdout, stderr) // it needs no configuration
	}
	if len(args) > 0 && args[0] == "images" {
		return programs.RunImageProgram(ctx) // its unit has no configuration
	}
	if len(args) > 0 && slices.Contains([]string{"privileged", "access", "processes"}, args[0]) {
		log, err := service.NewLogger(stderr, config.Default().LogLevel)
		if err != nil {
			return err
		}
		return programs.ServeBeside(ctx, args[0], args[1:], log) // it needs no valid configuration: the daemon has read its own
	}
	command := ""
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	cfg, err := config.Load(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	switch command {
	case "":
		log, err := service.NewLogger(stderr, cfg.LogLevel)
		if err != nil {
			return err
		}
		return serve(ctx, cfg, log)
	case "dialer", "connectors", "storage", "hook":
		log, err := service.NewLogger(stderr, cfg.LogLevel)
		if err != nil {
			return err
		}
		return programs.ServeBeside(ctx, command, args, log)
	case "check-config":
		return checkConfig(ctx, cfg, stdout, stderr)
	case "directories":
		// The script before a removal of the package stores this output, because a purge has no
		// configuration.
		if id, err := readID(idFile(cfg.StateDir)); err == nil { // otherwise no daemon has made overlays yet
			cfg.HostID = id
		}
		_, err := fmt.Fprintf(stdout, "guards %s\noverlays %s\nsaves %s\n", cfg.GuardDir(), cfg.Overlays(), cfg.SaveDir)
		return err
	case "open-ops":
		return printOpenOps(ctx, cfg, stdout)
	}
	return settings.Usagef("there is no command %q; see volferryd --help", command)
}
