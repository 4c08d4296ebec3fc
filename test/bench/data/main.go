// SPDX-License-Identifier: Apache-2.0

// Program data moves volumes by Volferry and by other tools, side by side, and says how long
// each took, what the guest felt of it and what it cost. It owns how moves are measured; what
// a contender does is one command that an operator would type.
//
// What is fair: every contender gets a new volume of equal size, fill and seed, a new
// destination, two file systems of a disk each, whose blocks have all been written before,
// and a guest that has just booted. Each round runs every contender once, in an order that
// rotates, so that what else the machine does is spread over all of them. After every move each
// byte of the destination is read back, and a wrong one fails the contender. All commands
// have made the copy durable when they end.
//
// What is not: the guest is emulated (TCG), so its latencies are those of a processor as much
// as of a disk: only ratios say something, and only of one run on an idle machine. The two disks
// are files on one disk. The daemon and its registry are idle beside the other tools, and
// phases are seen by asking twenty times a second, which is part of Volferry's CPU time. Only
// Volferry keeps the guest's new writes in a local overlay meanwhile (exposed), and only
// Volferry compares the copy with the source.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/volferry/volferry/test/site"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	o, err := parse()
	if err == nil {
		err = run(ctx, o, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parse reads the flags. What --full changes are the defaults of others.
func parse() (options, error) {
	root, err := site.Root()
	if err != nil {
		return options{}, err
	}
	o := options{bin: filepath.Join(root, "bin")}
	full := false
	for _, arg := range os.Args[1:] {
		full = full || strings.TrimLeft(arg, "-") == "full"
	}
	size, rounds, loads := int64(1024), 3, "none,depth1"
	if full {
		size, rounds, loads = 4096, 5, strings.Join(writerNames(), ",")
	}
	flag.Bool("full", full, "5 rounds of 4096 MiB with every writer, unless another flag says otherwise")
	flag.Int64Var(&o.sizeMiB, "size", size, "size of the volume in `MiB`")
	flag.Uint64Var(&o.fill, "fill", 100, "`percent` of the volume's blocks that hold data")
	flag.IntVar(&o.rounds, "rounds", rounds, "how often each contender runs")
	flag.DurationVar(&o.seconds, "seconds", 3*time.Second, "how long a guest is watched before and after a move")
	flag.StringVar(&o.writers, "writers", loads, "comma-separated `names` of what running guests do: "+strings.Join(writerNames(), ", "))
	flag.StringVar(&o.only, "only", "", "comma-separated `names` of contenders, empty for all: "+strings.Join(contenderNames(), ", "))
	flag.StringVar(&o.fs, "fs", "xfs", "`type` of the file systems of both pools, xfs or ext4")
	flag.Uint64Var(&o.seed, "seed", 1, "of fill and writes")
	flag.StringVar(&o.out, "out", filepath.Join(root, "build", "bench-data"), "`directory` for the results")
	flag.StringVar(&o.bin, "bin", o.bin, "`directory` of the built programs")
	flag.Parse()
	if flag.NArg() > 0 || o.sizeMiB < 16 || o.rounds < 1 || o.fill > 100 {
		return o, fmt.Errorf("a volume has 16 MiB or more and is filled up to 100 %%, there is a round, and nothing but flags")
	}
	return o, nil
}
