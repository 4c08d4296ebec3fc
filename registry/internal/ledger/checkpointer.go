// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/sqlitedb"
)

const (
	// checkpointPages is how many pages of the log are written into the file at once: 64 MiB. A
	// page that was changed several times meanwhile is written once, and at the end of each
	// checkpoint the writer waits for two writes to stable storage. In a longer log it takes longer
	// to find a page.
	checkpointPages = 16384
	// pagesForWriter is how many pages are few enough for the writer to do the rest.
	pagesForWriter = 256
	// checkpointRounds bounds how often the rest is tried to be made as small as that.
	checkpointRounds = 4
)

// checkpointer keeps the log of commits (WAL) short while many are made. A checkpoint
// of 64 MiB takes as long as hundreds of commits, and nobody is to wait for it: it is done
// beside the writer, which only does what was added meanwhile.
type checkpointer struct {
	wal     *sqlitedb.Checkpointer
	writer  *writer
	pages   int
	closing chan struct{}
	stopped chan struct{}
}

// startCheckpointer starts a checkpointer, which begins when the log has so many pages.
func startCheckpointer(wal *sqlitedb.Checkpointer, w *writer, pages int) *checkpointer {
	c := &checkpointer{wal: wal, writer: w, pages: pages, closing: make(chan struct{}), stopped: make(chan struct{})}
	go c.run()
	return c
}

// stop lets a checkpoint end, and must come before the writer's end.
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
			// One that fails is tried again with the next changes; what keeps the file from
			// being written, the writer meets as well, and says so.
			if pending, err := c.wal.Pending(ctx); err == nil && pending >= c.pages {
				_ = c.checkpoint(ctx)
			}
		case <-c.closing:
			return
		}
	}
}

// checkpoint empties the log. When it returns the next commit begins the log anew, if
// no reader is in the way.
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
