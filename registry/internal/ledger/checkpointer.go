// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/sqlitedb"
)

const (
	// checkpointPages is the length of the log at the start of a checkpoint: 64 MiB. With a longer
	// log a page that changed several times is written once, and the writer waits less often, but
	// lookups of pages are slower.
	checkpointPages = 16384
	// pagesForWriter is how many remaining pages of the log the writer itself may copy.
	pagesForWriter = 256
	// checkpointRounds bounds the attempts to reach pagesForWriter.
	checkpointRounds = 4
)

// checkpointer keeps the log of commits (WAL) short. A checkpoint of 64 MiB takes as long as
// hundreds of commits. So it runs concurrently, and the writer pauses only for the pages added
// meanwhile.
type checkpointer struct {
	wal     *sqlitedb.Checkpointer
	writer  *writer
	pages   int
	closing chan struct{}
	stopped chan struct{}
}

func startCheckpointer(wal *sqlitedb.Checkpointer, w *writer, pages int) *checkpointer {
	c := &checkpointer{wal: wal, writer: w, pages: pages, closing: make(chan struct{}), stopped: make(chan struct{})}
	go c.run()
	return c
}

// stop waits for a running checkpoint. It must be called before the writer's stop.
func (c *checkpointer) stop() error {
	close(c.closing)
	<-c.stopped
	return c.wal.Close()
}

func (c *checkpointer) run() {
	defer close(c.stopped)
	ctx := context.Background()
	for {
		select {
		case <-c.writer.checkpoint:
			// A failed checkpoint is repeated after more changes. The writer fails too if the file
			// cannot be written.
			if pending, err := c.wal.Pending(ctx); err == nil && pending >= c.pages {
				_ = c.checkpoint(ctx)
			}
		case <-c.closing:
			return
		}
	}
}

// checkpoint copies the log into the database file. The next commit then starts at the beginning
// of the log, unless a reader prevents it.
func (c *checkpointer) checkpoint(ctx context.Context) error {
	for range checkpointRounds {
		pending, err := c.wal.Checkpoint(ctx)
		if err != nil {
			return err
		}
		if pending <= pagesForWriter {
			break
		}
	}
	if err := c.writer.pause(ctx, func() error { return c.wal.Finish(ctx) }); err != nil {
		return fmt.Errorf("finish the checkpoint: %w", err)
	}
	return nil
}
