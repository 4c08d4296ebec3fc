// SPDX-License-Identifier: Apache-2.0

// Program registry puts load on a real volferry-registry over mutual TLS and says how
// it held: durable changes per second, what they took, and what they cost in CPU
// time and memory. It owns how load is made and measured, speaks HTTP as hosts do,
// and knows nothing of the registry's inside.
//
// Load and registry share the machine. So it reports the CPU time of both, of
// everybody else in the meantime, and how long the disk alone takes to make
// something durable.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/volferry/volferry/test/site"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o, err := parse(os.Args[1:], names(), os.Stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "volferry-bench-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b, err := setUp(ctx, dir, o)
	if err != nil {
		return err
	}
	defer b.close()
	r, err := newReport(b, os.Stdout)
	if err == nil {
		err = b.measure(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, site.Tails(b.registry.Log()))
	}
	if o.results == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(o.results), 0o755); err != nil {
		return fmt.Errorf("make directory of the results: %w", err)
	}
	return r.save(o.results)
}

// steps are the whole run: first the small site, then the full one.
var steps = []struct {
	name string
	do   func(*bench, context.Context, *report) error
}{
	{"one", (*bench).oneClient},
	{"many", (*bench).manyClients},
	{"offered", (*bench).offeredRate},
	{"etcd", (*bench).besideEtcd},
	{"fill", (*bench).fillSite},
	{"memory", (*bench).memory},
	{"full", (*bench).manyClients},
	{"hosts", (*bench).heartbeats},
	{"both", (*bench).heartbeatsBesideAttach},
}

func names() []string {
	var all []string
	for _, s := range steps {
		all = append(all, s.name)
	}
	return all
}

func (b *bench) measure(ctx context.Context, r *report) error {
	for _, s := range steps {
		if b.only != "" && !slices.Contains(strings.Split(b.only, ","), s.name) {
			continue
		}
		if err := s.do(b, ctx, r); err != nil {
			return fmt.Errorf("measure %s: %w", s.name, err)
		}
		r.print()
	}
	return nil
}
