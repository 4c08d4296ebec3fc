// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/volferry/volferry/internal/atomicfile"
)

const (
	// ReserveBytes is enough for some thousand records and guards.
	ReserveBytes = 32 << 20
	reserveEvery = time.Minute
)

// NewReserve reserves space in the state directory for the journal, the guards and the registry's
// data. Recovery must write these files even if a guest has filled the disk.
func NewReserve(cfg *Config, log *slog.Logger) *atomicfile.Reserve {
	r := ReserveIn(cfg.StateDir)
	fillReserve(r, log)
	return r
}

// ReserveIn returns the existing reserve of a state directory.
func ReserveIn(stateDir string) *atomicfile.Reserve {
	return atomicfile.NewReserve(filepath.Join(stateDir, "reserve"), ReserveBytes)
}

// KeepReserve fills the reserve again when there is space.
func KeepReserve(ctx context.Context, r *atomicfile.Reserve, log *slog.Logger) error {
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
	if has, err := r.Fill(); err != nil || has < ReserveBytes {
		log.Warn("the room that is kept for the journal is not whole: make room in the state directory", "bytes", has, "of", ReserveBytes, "err", err)
	}
}
