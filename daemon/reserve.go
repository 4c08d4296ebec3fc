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
	// reserveBytes holds some thousand records and guards.
	reserveBytes = 32 << 20
	// reserveEvery is the interval between checks of a used reserve.
	reserveEvery = time.Minute
)

// newReserve reserves space in the state directory for the journal, the guards and the registry's
// data: the recovery needs these files even if a guest fills the disk.
func newReserve(cfg *config, log *slog.Logger) *atomicfile.Reserve {
	r := reserveIn(cfg.StateDir)
	fillReserve(r, log)
	return r
}

// reserveIn returns the existing reserve of a state directory.
func reserveIn(stateDir string) *atomicfile.Reserve {
	return atomicfile.NewReserve(filepath.Join(stateDir, "reserve"), reserveBytes)
}

// keepReserve fills the reserve again when there is space.
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
