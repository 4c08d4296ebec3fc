// SPDX-License-Identifier: Apache-2.0

// Program volferry-registry records who may use which volume of a site: hosts, pools, volumes,
// instances, attachments, locks and the audit trail. It never touches a hypervisor or the bytes of
// a volume.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/internal/settings"
	"github.com/volferry/volferry/internal/version"
	"github.com/volferry/volferry/registry/internal/server"
)

var commands = []command{backupCommand, acceptRestoreCommand, initCACommand, issueCertCommand, revokeCommand}

const usageHead = `volferry-registry - who may use which volume

Usage:
  volferry-registry [flags]                run
  volferry-registry check-config [flags]   say whether the configuration is right; start nothing
  volferry-registry version, --version
`

const usageTail = `
"volferry-registry COMMAND --help" says more of a command. A flag wins over the
configuration file. Flags:
`

func usage() string {
	var b strings.Builder
	b.WriteString(usageHead)
	for _, c := range commands {
		fmt.Fprintf(&b, "  volferry-registry %s %s\n      %s\n", c.name, c.args, c.summary)
	}
	b.WriteString(usageTail)
	return b.String()
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		service.NotifyFailed(err)
		fmt.Fprintf(os.Stderr, "%s: %v\n", server.Program, err)
		os.Exit(settings.ExitStatus(err))
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	name := ""
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	if name == "version" || name == "" && len(args) == 1 && (args[0] == "--version" || args[0] == "-version") {
		fmt.Fprintln(stdout, server.Program, version.String())
		return nil
	}
	for _, c := range commands {
		if c.name == name {
			return c.call(ctx, args, stdout, stderr)
		}
	}
	if name != "" && name != "check-config" {
		return settings.Usagef("there is no command %q; see %s --help", name, server.Program)
	}
	loaded, err := loadConfig(args, usage(), stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(loaded.Rest) > 0 {
		return settings.Usagef("%q is not what this command takes; see %s --help", loaded.Rest, server.Program)
	}
	cfg := loaded.Config
	if name == "check-config" {
		if err := cfg.check(); err != nil {
			return err
		}
		fmt.Fprintln(stdout, settings.Right(loaded.NoFile))
		return nil
	}
	log, err := service.NewLogger(stderr, cfg.LogLevel)
	if err != nil {
		return err
	}
	return serve(ctx, cfg, log)
}
