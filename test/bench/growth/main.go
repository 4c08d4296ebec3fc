// SPDX-License-Identifier: Apache-2.0

// Program growth measures how what a host does grows with how much there is of it: moves at once, the
// size of a volume, the size of an overlay, attachments, and history. Each series has a host of its
// own for every size, with a real libvirtd and no guest, and says with which power of the size the time
// grows. The absolute times are those of one machine.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/volferry/volferry/test/bench/meter"
	"github.com/volferry/volferry/test/site"
)

// options are what can be asked for.
type options struct {
	full     bool
	only     string
	bin, out string
	dir      string // below which hosts are made; "" for that of temporary files
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	o, err := parse()
	if err == nil {
		err = run(ctx, o, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

func parse() (options, error) {
	root, err := site.Root()
	if err != nil {
		return options{}, err
	}
	var o options
	flag.BoolVar(&o.full, "full", false, "the large sizes as well: needs 40 GiB of disk, and hours")
	flag.StringVar(&o.only, "only", "", "comma-separated `names` of series, empty for all: "+strings.Join(seriesNames(), ", "))
	flag.StringVar(&o.bin, "bin", filepath.Join(root, "bin"), "`directory` of the built programs")
	flag.StringVar(&o.out, "out", filepath.Join(root, "build", "bench-growth"), "`directory` for the results")
	flag.StringVar(&o.dir, "dir", "", "`directory` for hosts and volumes; empty for the one of temporary files")
	flag.Parse()
	for _, name := range o.names() {
		if !slices.Contains(seriesNames(), name) {
			return o, fmt.Errorf("there is no series %q", name)
		}
	}
	if flag.NArg() > 0 {
		return o, fmt.Errorf("there are flags alone, not %q", flag.Arg(0))
	}
	return o, nil
}

// names are the series that were asked for.
func (o options) names() []string {
	if o.only == "" {
		return seriesNames()
	}
	return strings.Split(o.only, ",")
}

// run measures, and writes the raw numbers and the table.
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
	machine["name"] = "run"
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
	return nil
}
