// SPDX-License-Identifier: Apache-2.0

// Command seeds reads what 'go test -json' printed of simulations that choose by chance, and says
// how many seeds of each passed. It fails if one failed, or if all of them are less than it is
// told.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/volferry/volferry/test/matrix"
)

func main() {
	atLeast := flag.Int("at-least", 0, "how many seeds have to pass")
	flag.Parse()
	if err := run(flag.Args(), *atLeast, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "seeds:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(files []string, atLeast int, out io.Writer) error {
	passed, failed, said := map[string]int{}, []string{}, map[string]string{}
	take := func(e matrix.Event) error {
		function, seed, isSeed := strings.Cut(e.Test, "/seed_")
		name := e.Package + " " + function
		if e.Action == "output" {
			said[name] += e.Output
		}
		switch {
		case e.Action == "pass" && isSeed && !strings.Contains(seed, "/"):
			passed[name]++
		case e.Action == "fail" && !isSeed:
			failed = append(failed, name)
		}
		return nil
	}
	for _, file := range files {
		if err := readFile(file, take); err != nil {
			return err
		}
	}
	all := 0
	for _, name := range slices.Sorted(maps.Keys(passed)) {
		fmt.Fprintf(out, "%7d seeds of %s\n", passed[name], name)
		all += passed[name]
	}
	fmt.Fprintf(out, "%7d seeds passed\n", all)
	for _, name := range failed {
		fmt.Fprint(out, failure(said[name]))
	}
	switch {
	case len(failed) > 0:
		return fmt.Errorf("these have failed: %q", failed)
	case all < atLeast:
		return fmt.Errorf("%d seeds have passed, and %d were asked for", all, atLeast)
	}
	return nil
}

// failure is what a test said, without its lines about what began and what passed.
func failure(said string) string {
	var text strings.Builder
	for line := range strings.Lines(said) {
		if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "=== ") && !strings.HasPrefix(trimmed, "--- PASS") {
			text.WriteString(line)
		}
	}
	return text.String()
}

func readFile(name string, take func(matrix.Event) error) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return matrix.ReadEvents(f, take)
}
