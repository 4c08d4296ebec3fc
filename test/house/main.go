// SPDX-License-Identifier: Apache-2.0

// Command house measures the structure and the prose of the sources: what a person who has to
// learn them meets. With --sample N it prints N doc comments, messages, changelog entries and
// titles of commits, drawn by lot with --seed, for a reader to judge.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"text/tabwriter"
)

func main() {
	log.SetFlags(0)
	number := flag.Int("sample", 0, "print `N` passages of each kind, drawn by lot, and no measures")
	seed := flag.Uint64("seed", 1, "the lot's `seed`")
	flag.Parse()
	tree, err := read(".")
	if err != nil {
		log.Fatal(err)
	}
	if *number > 0 {
		tree.sample(os.Stdout, *number, *seed)
		return
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, m := range tree.measures() {
		fmt.Fprintf(table, "%s\t%s\n", m.name, m.value)
	}
	if err := table.Flush(); err != nil {
		log.Fatal(err)
	}
}
