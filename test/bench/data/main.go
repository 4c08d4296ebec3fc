// SPDX-License-Identifier: Apache-2.0

// Program data moves volumes by Volferry and by other tools, side by side, and says how long
// each took, what the guest felt of it and what it cost. It owns how moves are measured; what
// a contender does is one command that an operator would type.
//
// What is fair: every contender gets a new volume of equal size, fill and seed, a new destination,
// file systems whose blocks have all been written before, two of them unless it clones, and a guest
// that has just booted. Each round runs every contender once, in an order that rotates, so that
// what else the machine does is spread over all of them. After every move each byte of the
// destination is read back, and a wrong one fails the contender. All commands have made the copy
// durable when they end.
//
// What is not: the guest is emulated (TCG), so its latencies are those of a processor as much as of
// a disk: only ratios say something, and only of one run on an idle machine. Source and destination
// are files on one disk, or the destination is in memory, where it stands for a second one, and for
// one that is never slow. The daemon and its registry are idle beside the other tools, and phases
// are seen by asking twenty times a second, which is part of Volferry's CPU time. Only Volferry
// keeps the guest's new writes in a local overlay meanwhile (exposed), and only Volferry compares
// the copy with the source.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/volferry/volferry/test/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case err != nil:
	case o.confined && !lab.Confined():
		err = runConfined(ctx, os.Args[1:], o.out, os.Stdout)
	default:
		err = run(ctx, o, os.Stdout)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
