// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/test/site"
)

// introduction is what --help says before the flags.
const introduction = `Move volumes by Volferry and by other tools, side by side, as root on an idle machine.

Without flags: 5 rounds of a volume of 384 MiB that is full, stopped and under a guest that makes each
write of 4 KiB durable, on one disk. On two cores it takes eight to nine minutes; --writers none,depth1
takes four more.
With --full: 5 rounds of a volume of 1024 MiB, 10, 50 and 100 % full, on one disk and on two, with all
writers and all contenders. It takes about six hours, and 2.5 GiB of memory for the second disk.
With --confined: Volferry alone, with a guest that AppArmor confines and with another that has no
profile, on a machine of user-mode Linux.
The results are written after every round, so that one may stop it.

`

// parse reads the flags. What --full changes are the defaults of others.
func parse(args []string, help io.Writer) (options, error) {
	root, err := site.Root()
	if err != nil {
		return options{}, err
	}
	o := options{
		full: has(args, "full"), confined: has(args, "confined"),
		fills: numbers{100}, disks: numbers{1}, sizeMiB: 384, writers: "depth1", seconds: time.Second,
	}
	if o.full {
		o.fills, o.disks, o.sizeMiB, o.writers = numbers{10, 50, 100}, numbers{1, 2}, 1024, strings.Join(writerNames(), ",")
		o.seconds = 2 * time.Second
	}
	only := ""
	if o.confined {
		only = "volferry,volferry-unconfined"
	}
	f := flag.NewFlagSet("data", flag.ContinueOnError)
	f.SetOutput(help)
	f.Usage = func() {
		fmt.Fprint(help, introduction)
		f.PrintDefaults()
	}
	f.BoolVar(&o.full, "full", o.full, "all of it, unless another flag says otherwise")
	f.BoolVar(&o.confined, "confined", o.confined, "on a machine that confines its guests by AppArmor; unless another flag says otherwise, volferry and volferry-unconfined")
	f.Int64Var(&o.sizeMiB, "size", o.sizeMiB, "size of the volume in `MiB`")
	f.Var(&o.fills, "fill", "comma-separated `percents` of the volume's blocks that hold data")
	f.Var(&o.disks, "disks", "comma-separated `numbers`: 1 has source and destination on one disk; 2 has the destination on another one, which is in memory and takes twice the size and 512 MiB of it")
	f.IntVar(&o.rounds, "rounds", 5, "how often each contender runs")
	f.DurationVar(&o.seconds, "seconds", o.seconds, "how long a guest is watched before and after a move")
	f.StringVar(&o.writers, "writers", o.writers, "comma-separated `names` of what running guests do, empty for none of them: "+strings.Join(writerNames(), ", "))
	f.StringVar(&o.only, "only", only, "comma-separated `names` of contenders; empty for all, without --full for all but "+strings.Join(fullNames(), ", ")+": "+strings.Join(contenderNames(), ", "))
	f.StringVar(&o.fs, "fs", "xfs", "`type` of the file systems of the pools: xfs, btrfs or ext4")
	f.Uint64Var(&o.seed, "seed", 1, "of fill and writes")
	f.StringVar(&o.out, "out", filepath.Join(root, "build", "bench"), "`directory` for the results")
	f.StringVar(&o.bin, "bin", filepath.Join(root, "bin"), "`directory` of the built programs")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	return o, o.check(f.NArg())
}

// has reports whether a flag without a value is set.
func has(args []string, name string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return strings.TrimLeft(arg, "-") == name })
}

// check refuses what cannot be measured. words are those that are no flags.
func (o options) check(words int) error {
	above := func(most uint64) func(uint64) bool { return func(v uint64) bool { return v > most } }
	switch {
	case words > 0:
		return fmt.Errorf("there are flags alone")
	case o.sizeMiB < 16 || o.rounds < 1:
		return fmt.Errorf("a volume has 16 MiB or more, and there is a round")
	case slices.ContainsFunc(o.fills, above(100)):
		return fmt.Errorf("a volume is filled up to 100 %%")
	case slices.ContainsFunc(o.disks, above(2)) || slices.Contains(o.disks, 0):
		return fmt.Errorf("source and destination are on 1 disk or on 2")
	}
	return nil
}
