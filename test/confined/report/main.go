// SPDX-License-Identifier: Apache-2.0

// Command report reads the output of `go test -json` from files, and writes the page of confined
// guests. It fails after that if a test has failed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/volferry/volferry/test/confined/evidence"
)

func main() {
	page := flag.String("page", "", "the file of the page")
	flag.Parse()
	if err := run(*page, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(page string, files []string) error {
	if page == "" || len(files) == 0 {
		return errors.New("it needs --page FILE and files with results; JSON=-json has a target of make print results")
	}
	var all evidence.Results
	for _, name := range files {
		if err := readFile(name, &all); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
	if err := os.WriteFile(page, []byte(all.Page()), 0o644); err != nil {
		return err
	}
	if failed := all.Failed(); len(failed) > 0 {
		return fmt.Errorf("tests have failed: %q", failed)
	}
	return nil
}

func readFile(name string, all *evidence.Results) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return all.Read(f)
}
