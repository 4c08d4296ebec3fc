// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// slowly is the cap on the copy that is to be cancelled, so that there is a half
// way.
const slowly = "100MiB/s"

// cancelHalfWay begins to move the volume back, step by step, and changes its
// mind in the middle of the copy.
func cancelHalfWay(ctx context.Context, s *stage) (result, error) {
	r := result{title: "2. cancelled", pool: "new"}
	s.heading("2. Begin to move it back, and cancel half way")
	s.say("The guest writes again. This time the move is made step by step, with a limit")
	s.say("on the speed of the copy. The steps take the volume's attachment:")
	if err := s.guest.Write(disk, load); err != nil {
		return r, err
	}
	if err := s.ctl(ctx, "attachment", "list"); err != nil {
		return r, err
	}
	v, err := s.volume(ctx)
	if err != nil {
		return r, err
	}
	if len(v.Attachments) != 1 {
		return r, fmt.Errorf("volume %s has %d attachments, and should have one", volumeName, len(v.Attachments))
	}
	attachment := v.Attachments[0].ID
	if r.idle, err = s.watchIdle(ctx); err != nil {
		return r, err
	}
	began := time.Now()
	if err := s.ctl(ctx, "migration", "start", attachment, "--to-pool", "old", "--bandwidth", slowly); err != nil {
		return r, err
	}
	if r.migration, err = s.lastMigration(ctx); err != nil {
		return r, err
	}
	if err := s.ctl(ctx, "--no-wait", "migration", "copy", attachment); err != nil {
		return r, err
	}
	s.say("\nWaiting until half of it is copied.")
	if err := s.untilHalf(ctx, r.migration.ID); err != nil {
		return r, err
	}
	if err := s.ctl(ctx, "migration", "list"); err != nil {
		return r, err
	}
	s.say("\nThe limit is on what the copy reads; what it reaches is less where the disk is busy.")
	s.say("That was enough. The guest's new writes go from the overlay back into the source:")
	cancelled := time.Now()
	if err := s.ctl(ctx, "migration", "cancel", attachment); err != nil {
		return r, err
	}
	return r, s.cancelled(ctx, &r, began, cancelled)
}

// cancelled looks at what the cancel left, and at what the guest felt.
func (s *stage) cancelled(ctx context.Context, r *result, began, cancelled time.Time) error {
	var err error
	if r.migration, err = s.site.Migration(ctx, r.migration.ID); err != nil {
		return err
	}
	if r.migration.State != api.MigrationCancelled {
		return fmt.Errorf("migration %s is %s, and should be cancelled", r.migration.ID, r.migration.State)
	}
	if _, err := os.Stat(r.migration.Dst.Path); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the half copy %s is still there (%w)", r.migration.Dst.Path, err)
	}
	s.say("\nThe half copy is gone.")
	at, err := s.moments(ctx, r.migration.ID)
	if err != nil {
		return err
	}
	if err := s.guest.WaitWriting(ctx, disk, 500); err != nil {
		return err
	}
	if err := r.feel(s.guest.History(disk), at, began, cancelled); err != nil {
		return err
	}
	return s.verify(ctx, r)
}

// untilHalf waits until half of the bytes are copied.
func (s *stage) untilHalf(ctx context.Context, id string) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		m, err := s.site.Migration(ctx, id)
		if err != nil {
			return err
		}
		switch {
		case m.State != api.MigrationCopying && m.State != api.MigrationStarted:
			return fmt.Errorf("the copy was %s before it could be cancelled", m.State)
		case m.Error != nil:
			return m.Error
		case m.BytesDone >= m.BytesTotal/2:
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
