// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/volferry/volferry/internal/atomicfile"
)

const (
	// reserveBytes are some thousand records and guards.
	reserveBytes = 32 << 20
	// reserveEvery is how often a reserve that was used is looked at.
	reserveEvery = time.Minute
)

// newReserve keeps room for the journal, the guards and what the registry told in the
// state directory: a guest may fill its disk, and the way out of that needs them.
func newReserve(cfg *config, log *slog.Logger) *atomicfile.Reserve {
	r := reserveIn(cfg.StateDir)
	fillReserve(r, log)
	return r
}

// reserveIn is the reserve of a state directory, as much of it as there is.
func reserveIn(stateDir string) *atomicfile.Reserve {
	return atomicfile.NewReserve(filepath.Join(stateDir, "reserve"), reserveBytes)
}

// keepReserve fills the reserve again when there is room.
func keepReserve(ctx context.Context, r *atomicfile.Reserve, log *slog.Logger) error {
	tick := time.NewTicker(reserveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			fillReserve(r, log)
		}
	}
}

func fillReserve(r *atomicfile.Reserve, log *slog.Logger) {
	if has, err := r.Fill(); err != nil || has < reserveBytes {
		log.Warn("the room that is kept for the journal is not whole: make room in the state directory", "bytes", has, "of", reserveBytes, "err", err)
	}
}
