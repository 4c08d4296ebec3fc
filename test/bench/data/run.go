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

// run makes all measurements and writes the results. The error also says which contenders
// failed.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	groups, err := o.groups(out)
	if err != nil {
		return err
	}
	if missing := lab.Missing(); len(missing) > 0 {
		return errors.New("it lacks " + strings.Join(missing, ", ") + "; run test/lab/install.sh as root")
	}
	s, err := setUp(ctx, o)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	about := s.about(ctx)
	records, err := s.measureAll(ctx, groups, out)
	if err != nil {
		return err
	}
	about["load_average_at_end"] = meter.LoadAverage()
	if err := save(o.out, about, records, groups); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\nResults are in %s.\n", table(about, records, groups), o.out)
	if n := len(slices.DeleteFunc(records, func(r record) bool { return r.Error == "" })); n > 0 {
		return fmt.Errorf("%d moves failed", n)
	}
	return nil
}

// groups are what is asked for and can run here.
func (o options) groups(out io.Writer) ([]group, error) {
	known := func(what, names string, all []string) error {
		for _, n := range strings.Split(names, ",") {
			if n != "" && !slices.Contains(all, n) {
				return fmt.Errorf("there is no %s %q: %s", what, n, strings.Join(all, ", "))
			}
		}
		return nil
	}
	if err := errors.Join(known("contender", o.only, contenderNames()), known("writer", o.writers, writerNames())); err != nil {
		return nil, err
	}
	var running, still []contender
	for _, c := range contenders {
		switch reason := c.missing(); {
		case o.only != "" && !slices.Contains(strings.Split(o.only, ","), c.name):
		case reason != "":
			fmt.Fprintf(out, "SKIPPED %s: %s\n", c.name, reason)
		case c.running:
			running = append(running, c)
		default:
			still = append(still, c)
		}
	}
	groups := []group{{name: stopped, contenders: still}}
	for _, w := range writers {
		if slices.Contains(strings.Split(o.writers, ","), w.name) {
			groups = append(groups, group{name: w.name, writer: w, contenders: running})
		}
	}
	return slices.DeleteFunc(groups, func(g group) bool { return len(g.contenders) == 0 }), nil
}

// measureAll runs every contender once in each round. One that fails keeps no other from running.
func (s *stage) measureAll(ctx context.Context, groups []group, out io.Writer) (records []record, err error) {
	for round := range s.rounds {
		for _, g := range groups {
			for _, c := range rotated(g.contenders, round) {
				r, err := s.measure(ctx, c, g.writer)
				if ctx.Err() != nil {
					return nil, errors.Join(context.Cause(ctx), err)
				}
				r.Name, r.Round, r.Contender, r.Group, r.SizeBytes = "move", round+1, c.name, g.name, s.bytes()
				if err != nil {
					r.Error = err.Error()
					fmt.Fprintf(out, "round %d, %s, %s: FAILED: %v\n%s", r.Round, g.name, c.name, err, site.Tails(s.site.Log()))
				} else {
					fmt.Fprintf(out, "round %d, %s, %s: %.2f s\n", r.Round, g.name, c.name, r.TotalSeconds)
				}
				records = append(records, r)
			}
		}
	}
	return records, nil
}

// save writes raw results, table and plot into a directory.
func save(dir string, about map[string]any, records []record, groups []group) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	var raw strings.Builder
	lines := json.NewEncoder(&raw)
	errs := []error{lines.Encode(about)}
	for _, r := range records {
		errs = append(errs, lines.Encode(r))
	}
	for name, text := range map[string]string{"results.jsonl": raw.String(), "results.md": table(about, records, groups), "results.svg": plot(records, groups)} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	return nil
}
