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

// options are what can be asked for.
type options struct {
	seconds     time.Duration // of each measurement
	rounds      int           // of the comparison with etcd
	clients     int
	rate        int // changes per second that many clients offer together
	hosts       int // that heartbeat
	attachments int // of the full site
	seed        uint64
	results     string // file of the raw numbers
	only        string // the measurements that are made, "" for all
	bin         string
	etcd        string // program of test/bench/etcd, "" to leave the comparison out
}

// introduction is what --help says before the flags.
const introduction = `Put load on a registry, on an idle machine.

Without flags it takes about six minutes on two cores, and with --etcd twelve more; --only etcd takes those alone.

`

// parse reads the flags. steps are the names of what can be measured.
func parse(args, steps []string, help io.Writer) (options, error) {
	root, err := site.Root()
	if err != nil {
		return options{}, err
	}
	var o options
	f := flag.NewFlagSet("registry", flag.ContinueOnError)
	f.SetOutput(help)
	f.Usage = func() {
		fmt.Fprint(help, introduction)
		f.PrintDefaults()
	}
	f.DurationVar(&o.seconds, "time", 10*time.Second, "how long each measurement takes")
	f.IntVar(&o.rounds, "rounds", 5, "how often the registry and etcd are measured, in turns")
	f.IntVar(&o.clients, "clients", 1000, "how many connections the load of many clients has")
	f.IntVar(&o.rate, "rate", 10000, "changes per `second` that they offer together where they do not go as fast as they can; lower parts of it are measured, too")
	f.IntVar(&o.hosts, "hosts", 10000, "how many hosts report as often as the registry wants, and wait for tasks in between")
	f.IntVar(&o.attachments, "attachments", 100000, "how many attachments the full site has")
	f.Uint64Var(&o.seed, "seed", 1, "of the ids")
	f.StringVar(&o.bin, "bin", filepath.Join(root, "bin"), "`directory` of the built programs")
	f.StringVar(&o.etcd, "etcd", "", "built `program` of test/bench/etcd, with which the registry is measured in turns; empty to leave that out")
	f.StringVar(&o.only, "only", "", "comma-separated `names` of what is measured: "+strings.Join(steps, ", ")+"; empty for all")
	f.StringVar(&o.results, "results", "", "`file` to which the raw numbers are added, as JSON lines, for example test/bench/registry/results/NAME.jsonl")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("there are flags alone, not %q", f.Arg(0))
	}
	return o, o.check(steps)
}

// check refuses what cannot be measured.
func (o options) check(steps []string) error {
	if o.clients < 1 || o.rate < 1 || o.hosts < 1 || o.rounds < 1 || o.attachments < o.clients {
		return fmt.Errorf("there has to be something of everything, and as many attachments as clients")
	}
	for name := range strings.SplitSeq(o.only, ",") {
		if o.only != "" && !slices.Contains(steps, name) {
			return fmt.Errorf("there is no measurement %q: %s", name, strings.Join(steps, ", "))
		}
	}
	if o.only == "etcd" && o.etcd == "" {
		return fmt.Errorf("beside etcd takes --etcd")
	}
	return nil
}
