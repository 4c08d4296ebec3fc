// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

const liveWatchEvery = time.Minute

// WatchLive stops the tracking of guests, until ctx ends, in moves that the registry has ended
// without this host, or does not know because its database was restored from a backup. Their
// bitmaps slow the guests, and their guards prevent starts. Usually the registry requests this,
// but it may have been unavailable, or this host fenced.
func (p *Parts) WatchLive(ctx context.Context) error {
	tick := time.NewTicker(liveWatchEvery)
	defer tick.Stop()
	for {
		if err := p.UntrackUnwanted(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("cannot see whether guests are still to be followed; it is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// UntrackUnwanted stops the tracking of guests in moves that the registry no longer leads.
func (p *Parts) UntrackUnwanted(ctx context.Context) error {
	ops, err := p.journal.Ops(ctx, move.KindLiveTrack, false)
	if err != nil {
		return request.JournalError(err)
	}
	var failures error
	looked := map[string]bool{}
	for _, o := range ops {
		if p.history.HasEnded(o.Group) || looked[o.Group] {
			continue
		}
		looked[o.Group] = true
		if err := p.untrackIfUnwanted(ctx, o); err != nil {
			failures = errors.Join(failures, fmt.Errorf("%s: %w", o.Group, err))
		}
	}
	return failures
}

func (p *Parts) untrackIfUnwanted(ctx context.Context, track op.Op) error {
	var in move.LiveInput
	if err := json.Unmarshal(track.Input, &in); err != nil {
		return fmt.Errorf("decode the input of op %s: %w", track.ID, err)
	}
	live, err := p.history.LiveDone(ctx, in.MigrationID)
	if err != nil {
		return err
	}
	if live.Over {
		p.history.NoteEnded(track.Group)
		return nil
	}
	row, err := p.registry.Migration(ctx, in.MigrationID)
	switch {
	case api.CodeOf(err) == api.CodeNotFound:
	case err != nil:
		return err
	case !row.State.Final():
		return nil
	}
	p.log.Warn("the registry leads a move no more whose guests are still followed; that is ended", "migration", in.MigrationID, "volume", in.VolumeName)
	// The id is the same after a crash, but different if this op fails.
	id := uuid.NewSHA1(uuid.MustParse(in.MigrationID), fmt.Appendf(nil, "untrack %d", live.Ops)).String()
	return p.Live(ctx, id, api.LiveUntrack{LiveVolume: in.LiveVolume})
}

// StoodStill returns an error if a guest has written since its last writes were read, in a move
// while all guests write. The evidence is the bitmap in the guest's process, which is about to
// end. For other moves it returns nil. The guest must not be resumed meanwhile.
func (p *Parts) StoodStill(ctx context.Context, migrationID, instanceID string) error {
	live, err := p.history.LiveDone(ctx, migrationID)
	if err != nil || !live.Tracked {
		return err
	}
	refuse := func(format string, args ...any) *api.Error {
		return api.Errorf(api.CodeStateForbidden, format, args...).With("migration_id", migrationID).With("instance_id", instanceID).With("ran_on", true)
	}
	if live.Read == nil {
		return refuse("cannot save instance %s: what it wrote last was not read for migration %s", instanceID, migrationID)
	}
	for _, g := range live.Read.Guests {
		if g.ID != instanceID {
			continue
		}
		bitmaps, err := p.hv.Tracking(ctx, g.ID, g.Target)
		if errors.Is(err, hv.ErrNotActive) {
			return nil
		}
		if err != nil {
			return look.HVRefusal(err)
		}
		for _, b := range bitmaps {
			if b.Name == live.Read.LastBitmap() && b.Recording && b.DirtyBytes == 0 {
				return nil
			}
		}
		return refuse("cannot save instance %s: it was suspended for migration %s, and somebody has let it run on, or has changed its bitmaps", g.Name, migrationID)
	}
	return refuse("cannot save instance %s: it was not followed for migration %s", instanceID, migrationID)
}
