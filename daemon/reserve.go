// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
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
	r := atomicfile.NewReserve(filepath.Join(cfg.StateDir, "reserve"), reserveBytes)
	fillReserve(r, log)
	return r
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

// sharedDisk warns of a filesystem that guests can fill and the journal needs.
func (d *doctor) sharedDisk() api.Check {
	const name = "journal disk"
	state, err := filesystemOf(d.cfg.StateDir)
	if err != nil {
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "make the directory, or set state_dir"}
	}
	for key, dir := range map[string]string{"overlay_dir": d.cfg.OverlayDir, "save_dir": d.cfg.SaveDir} {
		if other, err := filesystemOf(dir); err == nil && other == state {
			return api.Check{
				Name: name, Status: "warn",
				Message: fmt.Sprintf("%s (%s) is on the filesystem of the journal (%s): a guest that fills it leaves the journal what was kept for it, %d MiB", key, dir, d.cfg.StateDir, reserveBytes>>20),
				Advice:  "set " + key + " to a filesystem of its own",
			}
		}
	}
	return ok(name, "guests cannot fill the filesystem of the journal")
}

func filesystemOf(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("look at %s: %w", dir, err)
	}
	return st.Dev, nil
}
