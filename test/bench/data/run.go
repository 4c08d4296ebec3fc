// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/test/bench/meter"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// run makes all measurements and writes the results, after each round once more. The error also
// says how many moves failed.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	groups, missing, err := o.groups()
	if err != nil {
		return err
	}
	for _, m := range missing {
		fmt.Fprintf(out, "SKIPPED %s\n", m)
	}
	if lacks := lab.Missing(); len(lacks) > 0 {
		return errors.New("it lacks " + strings.Join(lacks, ", ") + "; run test/lab/install.sh as root")
	}
	s, err := setUp(ctx, o)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	about := s.about(ctx)
	var records []record
	for round := range s.rounds {
		more, roundErr := s.measureRound(ctx, round, groups, out)
		records = append(records, more...)
		about["load_average_at_end"] = meter.LoadAverage()
		if err := errors.Join(roundErr, save(o.out, about, records, groups, missing)); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "\n%s\nResults are in %s.\n", table(about, records, groups, missing), o.out)
	if n := len(slices.DeleteFunc(records, func(r record) bool { return r.Error == "" })); n > 0 {
		return fmt.Errorf("%d moves failed; results.md says why", n)
	}
	return nil
}

// groups are what is asked for and can run here, and which contenders cannot, with the reason.
func (o options) groups() (groups []group, missing []string, err error) {
	known := func(what, names string, all []string) error {
		for _, n := range strings.Split(names, ",") {
			if n != "" && !slices.Contains(all, n) {
				return fmt.Errorf("there is no %s %q: %s", what, n, strings.Join(all, ", "))
			}
		}
		return nil
	}
	if err := errors.Join(known("contender", o.only, contenderNames()), known("writer", o.writers, writerNames())); err != nil {
		return nil, nil, err
	}
	var running, still []contender
	for _, c := range contenders {
		switch reason := c.missing(o.fs); {
		case !o.wants(c):
		case reason != "":
			missing = append(missing, c.name+": "+reason)
		case c.running:
			running = append(running, c)
		default:
			still = append(still, c)
		}
	}
	for _, at := range o.settings() {
		groups = append(groups, group{name: stopped, setting: at, contenders: at.possible(still)})
		for _, w := range writers {
			if slices.Contains(strings.Split(o.writers, ","), w.name) {
				groups = append(groups, group{name: w.name, writer: w, setting: at, contenders: at.possible(running)})
			}
		}
	}
	return slices.DeleteFunc(groups, func(g group) bool { return len(g.contenders) == 0 }), missing, nil
}

// wants reports whether a contender is asked for.
func (o options) wants(c contender) bool {
	if o.only == "" {
		return o.full || !c.full
	}
	return slices.Contains(strings.Split(o.only, ","), c.name)
}

// settings are every fill on one disk, then every fill on two, as far as they are asked for.
func (o options) settings() (all []setting) {
	for _, disks := range o.disks {
		for _, fill := range o.fills {
			all = append(all, setting{fill: fill, disks: disks})
		}
	}
	return all
}

// measureRound runs every contender of every group once. One that fails keeps no other from
// running. What was measured before ctx ended is returned with the error.
func (s *stage) measureRound(ctx context.Context, round int, groups []group, out io.Writer) (records []record, err error) {
	for _, g := range groups {
		for _, c := range rotated(g.contenders, round) {
			r, err := s.measure(ctx, c, g)
			if ctx.Err() != nil {
				return records, errors.Join(context.Cause(ctx), err)
			}
			r.Name, r.Round, r.Contender, r.Group, r.SizeBytes = "move", round+1, c.name, g.name, s.bytes()
			r.FillPercent, r.Disks = g.setting.fill, g.setting.disks
			what := fmt.Sprintf("round %d, %s, %d %%, disks %d, %s", r.Round, g.name, r.FillPercent, r.Disks, c.name)
			if err != nil {
				r.Error = err.Error()
				fmt.Fprintf(out, "%s: FAILED: %v\n%s", what, err, site.Tails(s.site.Log()))
			} else {
				fmt.Fprintf(out, "%s: %.2f s\n", what, r.TotalSeconds)
			}
			records = append(records, r)
		}
	}
	return records, nil
}

// save writes raw results, table and plot into a directory.
func save(dir string, about map[string]any, records []record, groups []group, missing []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	var raw strings.Builder
	lines := json.NewEncoder(&raw)
	errs := []error{lines.Encode(about)}
	for _, r := range records {
		errs = append(errs, lines.Encode(r))
	}
	for name, text := range map[string]string{
		"results.jsonl": raw.String(), "results.md": table(about, records, groups, missing), "results.svg": draw(records, groups),
	} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	return nil
}
