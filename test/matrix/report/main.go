// SPDX-License-Identifier: Apache-2.0

// Command report reads what 'go test -json' printed, from the files that it is given or
// from its standard input, and says of each row of the failure matrix what the tests
// that hold it said, and how often they ran.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/volferry/volferry/test/matrix"
)

const module = "github.com/volferry/volferry"

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(files []string, in io.Reader, out io.Writer) error {
	phases, err := matrix.Phases()
	if err != nil {
		return err
	}
	all := matrix.NewResults()
	for _, name := range files {
		if err := readFile(all, name); err != nil {
			return err
		}
	}
	if len(files) == 0 {
		if err := all.Read(in, module); err != nil {
			return err
		}
	}
	if !all.Report(out, phases) {
		return errors.New("a test of a row failed, or a row names a subtest that is not there")
	}
	return nil
}

func readFile(all *matrix.Results, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return all.Read(f, module)
}
