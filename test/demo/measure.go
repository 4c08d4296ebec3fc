// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// result is one column of the table.
type result struct {
	title     string
	pool      string // where the volume must be afterwards
	migration api.Migration
	// idle, during, start and switched are how the guest fared before, in all
	// of the migration, and around its two moments; nil without a guest.
	idle, during, start, switched *lab.Pace
	check                         *lab.Report
}

// idleTime is how long the guest is watched with nothing else going on.
const idleTime = 5 * time.Second

// watchIdle measures the guest when nothing is done to it.
func (s *stage) watchIdle(ctx context.Context) (*lab.Pace, error) {
	s.say("\nMeasuring the guest's writes for %.0f s with nothing else going on.", idleTime.Seconds())
	from := time.Now()
	select {
	case <-time.After(idleTime):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p := s.guest.History(disk).Between(from, time.Now())
	return &p, nil
}

// times are the moments of a migration, by the audit trail.
type times map[api.MigrationState]time.Time

// moments reads when the migration came into each of its states.
func (s *stage) moments(ctx context.Context, migration string) (times, error) {
	events, err := site.Get[[]api.Event](ctx, s.site.Caller, "events", "events")
	if err != nil {
		return nil, err
	}
	at := make(times)
	for _, e := range events {
		if e.Object == "migration/"+migration {
			at[api.MigrationState(e.To)] = e.At
		}
	}
	return at, nil
}

// feel fills in what the guest felt of a migration that was asked for at began
// and ended now: at the start, from the request until the source was frozen;
// at the switch, from the request that led there (or the claim of the daemon)
// until the end.
func (r *result) feel(h *lab.History, at times, began, switching time.Time) error {
	frozen, ended := at[api.MigrationStarted], at[r.migration.State]
	if frozen.IsZero() || switching.IsZero() || ended.IsZero() {
		return fmt.Errorf("the audit trail does not say when migration %s was started and ended: %v", r.migration.ID, at)
	}
	during, start, switched := h.Between(began, ended), h.Between(began, frozen), h.Between(switching, ended)
	r.during, r.start, r.switched = &during, &start, &switched
	return nil
}

// verify has the guest stop writing for a moment, reads the whole volume where
// Volferry says that it is, and holds it against what the guest was told.
func (s *stage) verify(ctx context.Context, r *result) error {
	v, err := s.volume(ctx)
	if err != nil {
		return err
	}
	s.say("\nChecking: the guest stops writing, and the whole volume is read, at")
	s.say("%s.", v.Location.Path)
	if err := s.guest.Quiesce(ctx, disk); err != nil {
		return err
	}
	h := s.guest.History(disk)
	if len(h.Errors) > 0 {
		return fmt.Errorf("%d operations failed in the guest; first: %s", len(h.Errors), h.Errors[0])
	}
	if v.Location.Pool != r.pool {
		return fmt.Errorf("volume %s is in pool %q, and should be in %q", volumeName, v.Location.Pool, r.pool)
	}
	r.check, err = lab.Check(ctx, lab.Volume{Path: v.Location.Path, Format: string(v.Location.Format)}, h)
	if err != nil {
		return err
	}
	if err := r.check.Err(); err != nil {
		return fmt.Errorf("the volume does not hold what the guest wrote: %w", err)
	}
	s.say("All %d blocks are right: %d operations acknowledged so far, %d found.", r.check.Blocks, r.check.Acked, r.check.Found)
	return nil
}
