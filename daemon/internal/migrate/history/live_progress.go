// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// LiveProgress is this host's progress in a move while all guests write.
type LiveProgress struct {
	Ops int
	// Tracked: this host has tracked guests. Over: that was ended, and nothing remains.
	Tracked, Over bool
	// LastCopied: the guests' last writes were copied.
	LastCopied bool
	// Read is the input of the newest op that has read the last writes, or nil.
	Read *move.LiveInput
}

// LiveDone returns this host's LiveProgress of a move.
func (r *Reader) LiveDone(ctx context.Context, migrationID string) (LiveProgress, error) {
	ops, err := r.Journal.Group(ctx, move.LiveGroup(migrationID))
	if err != nil {
		return LiveProgress{}, request.JournalError(err)
	}
	p := LiveProgress{Ops: len(ops)}
	for _, o := range ops {
		st, err := r.Runner.Status(ctx, o.ID)
		if err != nil {
			return p, request.JournalError(err)
		}
		done := st.State == op.StateDone
		switch o.Kind {
		case move.KindLiveTrack:
			p.Tracked = true
		case move.KindLiveUntrack:
			p.Over = p.Over || done
		case move.KindLiveLast:
			p.LastCopied = p.LastCopied || done
		case move.KindLiveLastRead:
			if done {
				p.Read = &move.LiveInput{}
				if err := json.Unmarshal(o.Input, p.Read); err != nil {
					return p, fmt.Errorf("decode the input of op %s: %w", o.ID, err)
				}
			}
		}
	}
	return p, nil
}
