// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/volferry/volferry/internal/api"
)

// CreateDrain begins to empty a pool, with a line for every volume that is in it
// now.
func (s *Store) CreateDrain(ctx context.Context, call Call, pool string, in api.PoolDrain) (api.Drain, error) {
	return api.Drain{}, errSkeleton()
}

// Drains returns every drain with its volumes, newest first.
func (s *Store) Drains(ctx context.Context) ([]api.Drain, error) { return nil, errSkeleton() }

// OpenDrains returns, oldest first, the drains that the loop has to look after:
// those that run or are paused, and those that were stopped while something
// still moves.
func (s *Store) OpenDrains(ctx context.Context) ([]api.Drain, error) { return nil, errSkeleton() }

// Drain returns the drain that ref names. Bytes done of what moves are those
// that the hosts last reported.
func (s *Store) Drain(ctx context.Context, ref string) (api.Drain, error) {
	return api.Drain{}, errSkeleton()
}

// SetDrainState pauses a drain, lets it run on, or stops it for good. What
// moves is let end.
func (s *Store) SetDrainState(ctx context.Context, call Call, ref, to string) (api.Drain, error) {
	return api.Drain{}, errSkeleton()
}

// RefreshDrainVolumes takes into a running drain the volumes that have come into
// its pool, and settles those that wait and are not there any more.
func (s *Store) RefreshDrainVolumes(ctx context.Context, call Call, drainID string) error {
	return errSkeleton()
}

// NextDrainVolumes returns the volumes of a drain that move, and those that may
// be begun as long as fewer than Parallel move; none of the latter unless the
// drain runs.
func (s *Store) NextDrainVolumes(ctx context.Context, drainID string) (moving, pending []api.DrainVolume, err error) {
	return nil, nil, errSkeleton()
}

// SetDrainVolume records how far a volume of a drain is: its state, migration,
// host and error. To moving it is refused with conflict unless the drain runs and
// fewer than Parallel move.
func (s *Store) SetDrainVolume(ctx context.Context, call Call, drainID string, v api.DrainVolume) error {
	return errSkeleton()
}

// FinishDrain ends a drain that has nothing left to do. It is refused with
// conflict while a volume waits or moves, or is in the pool and has no line yet.
func (s *Store) FinishDrain(ctx context.Context, call Call, drainID string) (api.Drain, error) {
	return api.Drain{}, errSkeleton()
}
