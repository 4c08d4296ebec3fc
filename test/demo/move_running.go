// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// moveRunning moves the volume from the old pool to the new one while the guest
// writes.
func moveRunning(ctx context.Context, s *stage) (result, error) {
	r := result{title: "1. running", pool: "new"}
	s.heading("1. Move the volume while the guest writes")
	s.say("Volferry has not heard of this guest yet. It takes over the disks of guests that exist:")
	if err := s.ctl(ctx, "instance", "adopt", guestName); err != nil {
		return r, err
	}
	if err := s.ctl(ctx, "volume", "list"); err != nil {
		return r, err
	}
	var err error
	if r.idle, err = s.watchIdle(ctx); err != nil {
		return r, err
	}
	s.say("\nOne command moves the volume. It freezes the source under an overlay, which")
	s.say("takes the new writes; copies the source and compares; folds the overlay into")
	s.say("the copy; and switches the guest over.")
	began := time.Now()
	if err := s.ctl(ctx, "volume", "migrate", volumeName, "--to-pool", r.pool); err != nil {
		return r, err
	}
	if r.migration, err = s.lastMigration(ctx); err != nil {
		return r, err
	}
	s.say("\nThe guest goes on, now on the new pool. Registry, journal and QEMU agree:")
	if err := s.ctl(ctx, "volume", "which", volumeName); err != nil {
		return r, err
	}
	at, err := s.moments(ctx, r.migration.ID)
	if err != nil {
		return r, err
	}
	if err := s.guest.WaitWriting(ctx, disk, 500); err != nil {
		return r, err
	}
	if err := r.feel(s.guest.History(disk), at, began, at[api.MigrationCompleting]); err != nil {
		return r, err
	}
	return r, s.verify(ctx, &r)
}
