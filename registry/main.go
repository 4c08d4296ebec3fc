// SPDX-License-Identifier: Apache-2.0

// Program volferry-registry holds the site's truth of who may use which volume:
// hosts, pools, volumes, instances, attachments, locks and the audit trail. It
// never touches a hypervisor or the bytes of a volume.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/internal/version"
	"github.com/volferry/volferry/registry/internal/server"
)

const usage = `volferry-registry - who may use which volume

Usage:
  volferry-registry [flags]                run
  volferry-registry check-config [flags]   say whether the configuration is right; start nothing
  volferry-registry backup [flags] FILE    copy the database to a new file; the registry may be running
  volferry-registry version

A flag wins over the configuration file. Flags:
`

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", server.Program, err)
		os.Exit(1)
	}
}

// run is the program without its process: results go to stdout, talk to
// stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	command := ""
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	cfg, rest, err := loadConfig(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	want := 0
	if command == "backup" {
		want = 1
	}
	if len(rest) < want {
		return fmt.Errorf("FILE is missing: give backup a file to make; see %s --help", server.Program)
	}
	if len(rest) > want {
		return fmt.Errorf("%q is not what this command takes; see %s --help", rest, server.Program)
	}
	switch command {
	case "":
		log, err := service.NewLogger(stderr, cfg.LogLevel)
		if err != nil {
			return err
		}
		return serve(ctx, cfg, log)
	case "check-config":
		if err := cfg.check(); err != nil {
			return err
		}
		fmt.Fprintln(stdout, "the configuration is right")
		return nil
	case "backup":
		return sqlitedb.Backup(ctx, cfg.DB, rest[0])
	case "version":
		fmt.Fprintln(stdout, server.Program, version.String())
		return nil
	}
	return fmt.Errorf("there is no command %q; see %s --help", command, server.Program)
}
