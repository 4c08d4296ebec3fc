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
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/volferry/volferry/test/site"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root, err := site.Root()
	if err != nil {
		return err
	}
	o := options{bin: filepath.Join(root, "bin")}
	flag.DurationVar(&o.seconds, "time", 15*time.Second, "how long each measurement takes")
	flag.IntVar(&o.clients, "clients", 1000, "how many connections the load of many clients has")
	flag.IntVar(&o.rate, "rate", 10000, "changes per `second` that they offer together where they do not go as fast as they can")
	flag.IntVar(&o.hosts, "hosts", 10000, "how many hosts report as often as the registry wants, and wait for tasks in between")
	flag.IntVar(&o.attachments, "attachments", 100000, "how many attachments the full site has")
	flag.Uint64Var(&o.seed, "seed", 1, "of the ids")
	flag.StringVar(&o.bin, "bin", o.bin, "`directory` of the built programs")
	flag.StringVar(&o.etcd, "etcd", "", "built `program` of test/bench/etcd, with which the registry is measured in turns; empty to leave that out")
	flag.StringVar(&o.only, "only", "", "comma-separated `names` of what is measured: "+strings.Join(names(), ", ")+"; empty for all")
	flag.StringVar(&o.results, "results", "", "`file` to which the raw numbers are added, as JSON lines, for example test/bench/registry/results/NAME.jsonl")
	flag.Parse()
	if o.clients < 1 || o.rate < 1 || o.hosts < 1 || o.attachments < o.clients {
		return fmt.Errorf("there has to be something of everything, and as many attachments as clients")
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
	{"full", (*bench).manyClientsFull},
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
