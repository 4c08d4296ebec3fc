// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/conformance"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
	"github.com/volferry/volferry/internal/settings"
)

const tryConnectorUsage = `volferryd connector-test - say whether a connector keeps to its protocol

Usage:
  volferryd connector-test [flags] PROGRAM [KEY=VALUE ...]

It runs PROGRAM, as root, for everything that the protocol has, with the options KEY=VALUE, which are
those of a pool in volferryd.toml. It makes volumes with names that begin with volferry-test-, writes
to them and deletes them. Where a pool connects volumes that its target has, it connects and disconnects
those that --volume names, which nobody may use, and writes nothing to them unless --overwrite says that it
may: copy is tried between them then. It touches no other volume.
The exit status is 0 if nothing was violated.

Flags:
`

// interruptedAfter are the times after which the test interrupts a verb: while the verb starts,
// reads, or changes something.
var interruptedAfter = []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, time.Second}

const watchedFor = 2 * time.Second

func tryConnector(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	set := flag.NewFlagSet("volferryd connector-test", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	size := set.Int64("size-bytes", 0, "size of the volumes that are made, rounded up (default 16 MiB)")
	pool := set.String("pool", "connector-test", "`name` of the pool that the connector is told")
	overwrite := set.Bool("overwrite", false, "try the verb copy between the two volumes of --volume, which loses all that is in them")
	var volumes []string
	set.Func("volume", "`name` of a volume that is connected and disconnected; say it twice for two of one target", func(name string) error {
		volumes = append(volumes, name)
		return connector.CheckVolumeName(name)
	})
	err := settings.ParseFlags(set, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stderr, tryConnectorUsage)
		set.SetOutput(stderr)
		settings.PrintFlags(set)
		return nil
	}
	if err != nil {
		return settings.Usagef("%w; see volferryd connector-test --help", err)
	}
	if set.NArg() == 0 {
		return settings.Usagef("connector-test needs a program; see volferryd connector-test --help")
	}
	program, err := filepath.Abs(set.Arg(0))
	if err != nil {
		return err
	}
	options := map[string]string{}
	for _, option := range set.Args()[1:] {
		key, value, found := strings.Cut(option, "=")
		if !found || key == "" {
			return settings.Usagef("%q is no option; say KEY=VALUE", option)
		}
		options[key] = value
	}
	checks := 0
	failed := conformance.Run(ctx, conformance.Subject{
		Run: func(ctx context.Context, in connector.Request) (connector.Answer, error) {
			in.Pool, in.Options = *pool, options
			return connector.Try(ctx, program, in)
		},
		Look: pools.Look, Open: conformance.OpenDevice, SizeBytes: *size, Volumes: volumes, Overwrite: *overwrite, Interrupted: interruptedAfter, Late: watchedFor,
		Report: func(f conformance.Finding) {
			checks++
			if f.Err != nil {
				fmt.Fprintf(stdout, "FAIL  %s: %v\n", f.Check, f.Err)
				return
			}
			fmt.Fprintf(stdout, "ok    %s\n", f.Check)
		},
	})
	if failed > 0 {
		return fmt.Errorf("%s violates the protocol in %d of %d checks", program, failed, checks)
	}
	fmt.Fprintf(stdout, "%s keeps to protocol %d in all %d checks\n", program, connector.Protocol, checks)
	return nil
}
