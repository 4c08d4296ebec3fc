// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/test/site"
)

// options are what can be asked for.
type options struct {
	full     bool
	only     string
	bin, out string
	dir      string   // below which hosts are made; "" for that of temporary files
	drawn    []string // raw results that are drawn, in which case nothing is measured
}

// parse reads the flags.
func parse(args []string, help io.Writer) (options, error) {
	root, err := site.Root()
	if err != nil {
		return options{}, err
	}
	var (
		o    options
		draw bool
	)
	f := flag.NewFlagSet("growth", flag.ContinueOnError)
	f.SetOutput(help)
	f.BoolVar(&o.full, "full", false, "the large sizes as well: needs 40 GiB of disk, and hours")
	f.StringVar(&o.only, "only", "", "comma-separated `names` of series, empty for all: "+strings.Join(seriesNames(), ", "))
	f.StringVar(&o.bin, "bin", filepath.Join(root, "bin"), "`directory` of the built programs")
	f.StringVar(&o.out, "out", filepath.Join(root, "build", "bench-growth"), "`directory` for the results")
	f.StringVar(&o.dir, "dir", "", "`directory` for hosts and volumes; empty for the one of temporary files")
	f.BoolVar(&draw, "plot", false, "draw the raw results in the files that are named behind the flags, each a growth.jsonl of any day, and measure nothing")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	for _, name := range o.names() {
		if !slices.Contains(seriesNames(), name) {
			return o, fmt.Errorf("there is no series %q", name)
		}
	}
	switch {
	case draw && f.NArg() == 0:
		return o, errors.New("--plot draws files, and none is named")
	case draw:
		o.drawn = f.Args()
	case f.NArg() > 0:
		return o, fmt.Errorf("files are for --plot alone, not %q", f.Arg(0))
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
