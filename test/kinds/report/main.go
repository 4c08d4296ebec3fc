// SPDX-License-Identifier: Apache-2.0

// Command report reads what 'go test -json' printed, from the files that it is given, and prints
// the page of the kinds of storage. Moves of tests in runs in which they failed are not on it. With
// --since PAGE it has what that page says as well, of runs whose files are gone.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/volferry/volferry/test/kinds"
	"github.com/volferry/volferry/test/matrix"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(args []string, out io.Writer) error {
	set := flag.NewFlagSet("report", flag.ContinueOnError)
	since := set.String("since", "", "also what this `page` says")
	if err := set.Parse(args); err != nil {
		return err
	}
	var all kinds.Results
	if *since != "" {
		if err := readFile(*since, all.ReadPage); err != nil {
			return err
		}
	}
	files := set.Args()
	for _, name := range files {
		if err := readFile(name, func(r io.Reader) error { return all.Read(r, matrix.Module) }); err != nil {
			return err
		}
	}
	if len(all.Passed()) == 0 {
		return fmt.Errorf("no test that passed has said a move in %q; JSON=-json has a target of make print what it is read from", files)
	}
	if _, err := io.WriteString(out, all.Page()); err != nil {
		return err
	}
	if failed := all.Failed(); len(failed) > 0 {
		return fmt.Errorf("these have not passed, and are not on the page: %q", failed)
	}
	return nil
}

func readFile(name string, read func(io.Reader) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return read(f)
}
