// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/journal"
)

// printOpenOps prints the unfinished ops of the journal. The removal script stores the output for
// the purge, which no longer has this program.
func printOpenOps(ctx context.Context, cfg *config.Config, stdout io.Writer) (err error) {
	path := filepath.Join(cfg.StateDir, "journal.db")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil // Open would create the journal
	}
	defer config.ReserveIn(cfg.StateDir).Close()
	records, err := journal.Open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	open, err := records.Unfinished(ctx)
	if err != nil {
		return err
	}
	for i := range open {
		if _, err := fmt.Fprintf(stdout, "operation %s (%s)\n", open[i].ID, open[i].Kind); err != nil {
			return err
		}
	}
	return nil
}
