// SPDX-License-Identifier: Apache-2.0

// Journaldump opens journals as volferryd does and prints their content, for tests that read the
// journals of hosts after a power cut. No package ships it.
//
// It reads the path of a journal from each line of its standard input, and answers with a line of
// JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/volferry/volferry/daemon/internal/journal"
	"github.com/volferry/volferry/daemon/internal/op"
)

type content struct {
	Error   string
	Ops     []op.Op     // oldest first
	Records []op.Record // ordered by op
}

func main() {
	if err := dump(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func dump(ctx context.Context, in io.Reader, out io.Writer) error {
	paths, answers := bufio.NewScanner(in), json.NewEncoder(out)
	for paths.Scan() {
		c, err := read(ctx, paths.Text())
		if err != nil {
			c = content{Error: err.Error()}
		}
		if err := answers.Encode(c); err != nil {
			return err
		}
	}
	return paths.Err()
}

func read(ctx context.Context, path string) (c content, err error) {
	j, err := journal.Open(ctx, path)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if c.Ops, err = j.Ops(ctx, "", false); err != nil {
		return c, err
	}
	for _, o := range c.Ops {
		records, err := j.Records(ctx, o.ID)
		if err != nil {
			return c, err
		}
		c.Records = append(c.Records, records...)
	}
	return c, nil
}
