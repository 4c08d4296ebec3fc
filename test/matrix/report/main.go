// SPDX-License-Identifier: Apache-2.0

// Command report reads what 'go test -json' printed, from the files that it is given or from its
// standard input, and says of each row of the failure matrix what the tests that hold it said, and
// how often they ran. With --page it writes a page of that as well, and with --since it adds what
// such a page says of runs whose files are gone. With --machine it prints the line that says in
// such a file where its tests ran, and with --left-by the rows of which a target of the Makefile
// here runs no real test; both read nothing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/volferry/volferry/test/matrix"
)

func main() {
	page := flag.String("page", "", "the file of the page")
	since := flag.String("since", "", "the file of a page of earlier runs")
	version := flag.String("machine", "", "print the line of a run of this version")
	target := flag.String("left-by", "", "print the rows of which this target of the Makefile runs no real test")
	flag.Parse()
	if *version != "" {
		fmt.Println(matrix.RunLine(*version, machine()))
		return
	}
	var err error
	if *target != "" {
		err = leftBy(*target, os.Stdout)
	} else {
		err = run(flag.Args(), os.Stdin, os.Stdout, *page, *since)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(files []string, in io.Reader, out io.Writer, page, since string) error {
	phases, err := matrix.Phases()
	if err != nil {
		return err
	}
	all := matrix.NewResults()
	if since != "" {
		if err := readFile(since, all.ReadPage); err != nil {
			return err
		}
	}
	for _, name := range files {
		if err := readFile(name, func(r io.Reader) error { return all.Read(r, matrix.Module) }); err != nil {
			return err
		}
	}
	if len(files) == 0 {
		if err := all.Read(in, matrix.Module); err != nil {
			return err
		}
	}
	if page != "" {
		if err := os.WriteFile(page, []byte(all.RunsPage(phases)), 0o644); err != nil { //nolint:gosec // everybody reads documentation
			return err
		}
	}
	if !all.Report(out, phases) {
		return errors.New("a test of a row failed, or a row names a subtest that is not there")
	}
	return nil
}

func leftBy(target string, out io.Writer) error {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		return err
	}
	targets, err := matrix.ReadTargets(string(makefile))
	if err != nil {
		return err
	}
	phases, err := matrix.Phases()
	if err != nil {
		return err
	}
	targets.LeftBy(out, target, phases)
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
