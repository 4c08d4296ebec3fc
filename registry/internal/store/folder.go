// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/sqlitedb"
)

const (
	// lookEvery is after how many changes the length of the log is looked at.
	lookEvery = 256
	// foldAt is how many pages of the log are folded at once: 16 MiB. The more there
	// are, the more changes of one page cost one write of it.
	foldAt = 4096
	// leaveRest is how many pages are few enough for the writer to fold them.
	leaveRest = 256
	// foldRounds bounds how often the rest is tried to be made as small as that.
	foldRounds = 4
)

// folder keeps the log of commits short while many are made. To fold 16 MiB takes
// what a hundred commits take, and nobody is to wait for it: it is done beside the
// writer, which folds only what was added meanwhile.
type folder struct {
	log     *sqlitedb.Folder
	writer  *writer
	foldAt  int
	closing chan struct{}
	stopped chan struct{}
}

func startFolder(log *sqlitedb.Folder, w *writer, foldAt int) *folder {
	f := &folder{log: log, writer: w, foldAt: foldAt, closing: make(chan struct{}), stopped: make(chan struct{})}
	go f.run()
	return f
}

// stop lets a fold end, and must come before the writer's end.
func (f *folder) stop() error {
	close(f.closing)
	<-f.stopped
	return f.log.Close()
}

func (f *folder) run() {
	defer close(f.stopped)
	ctx := context.Background()
	for {
		select {
		case <-f.writer.look:
			// One that fails is tried again with the next changes; what keeps the file from
			// being written, the writer meets as well, and says so.
			if left, err := f.log.Left(ctx); err == nil && left >= f.foldAt {
				_ = f.fold(ctx)
			}
		case <-f.closing:
			return
		}
	}
}

// fold empties the log, and returns when the next commit begins it anew if no reader
// is in the way.
func (f *folder) fold(ctx context.Context) error {
	for range foldRounds {
		left, err := f.log.Fold(ctx)
		if err != nil {
			return err
		}
		if left <= leaveRest {
			break
		}
	}
	if err := f.writer.pause(ctx, func() error { return f.log.FoldRest(ctx) }); err != nil {
		return fmt.Errorf("fold the rest: %w", err)
	}
	return nil
}
