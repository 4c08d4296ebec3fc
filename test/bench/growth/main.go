// SPDX-License-Identifier: Apache-2.0

// Program growth measures how what a host does grows with how much there is of it: moves at once,
// the size of a volume, the size of an overlay, attachments, and history. Each series has a host of
// its own for every size, with a real libvirtd and no guest, and says with which power of the size
// the time grows. The absolute times are those of one machine.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/volferry/volferry/test/bench/meter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case err != nil:
	case o.drawn != nil:
		err = drawFiles(o, os.Stdout)
	default:
		err = run(ctx, o, os.Stdout)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

// run measures, and writes the raw numbers, the table and the plot.
func run(ctx context.Context, o options, progress io.Writer) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("make directory for the results: %w", err)
	}
	raw, err := os.Create(filepath.Join(o.out, "growth.jsonl"))
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	defer func() { _ = raw.Close() }()
	lines := json.NewEncoder(raw)
	machine := meter.Machine(cmp.Or(o.dir, os.TempDir()))
	machine["name"], machine["at"] = "run", time.Now().UTC().Format(time.RFC3339)
	if err := lines.Encode(machine); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	var table strings.Builder
	for _, s := range all {
		if !slices.Contains(o.names(), s.name) {
			continue
		}
		points, err := s.run(ctx, o.bin, o.dir, o.full, func(p point) error {
			fmt.Fprintf(progress, "%s, %d %s: %.2f s\n", s.name, p.N, s.unit, p.Seconds)
			return lines.Encode(p)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		s.table(&table, points)
	}
	fmt.Fprint(progress, "\n", table.String())
	if err := os.WriteFile(filepath.Join(o.out, "growth.md"), []byte(table.String()), 0o644); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	o.drawn = []string{raw.Name()}
	return drawFiles(o, progress)
}

// drawFiles draws raw results into the directory of the results.
func drawFiles(o options, progress io.Writer) error {
	var runs []measuredRun
	for _, path := range o.drawn {
		more, err := readRuns(path)
		if err != nil {
			return fmt.Errorf("read raw results: %w", err)
		}
		runs = append(runs, more...)
	}
	text, err := draw(runs, o.names())
	if err != nil {
		return err
	}
	path := filepath.Join(o.out, "growth.svg")
	if err := errors.Join(os.MkdirAll(o.out, 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	fmt.Fprintf(progress, "The plot is %s.\n", path)
	return nil
}
