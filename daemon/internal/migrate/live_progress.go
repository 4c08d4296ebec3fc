// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// liveProgress is what this host has done in a move while all guests write.
type liveProgress struct {
	ops int
	// tracked: guests were tracked. over: that was ended, and nothing remains.
	tracked, over bool
	// lastCopied: the guests' last writes were copied.
	lastCopied bool
	// read is the input of the newest op that has read the guests' last writes, nil if none has.
	read *move.LiveInput
}

func (m *Manager) liveDone(ctx context.Context, migrationID string) (liveProgress, error) {
	ops, err := m.journal.Group(ctx, move.LiveGroup(migrationID))
	if err != nil {
		return liveProgress{}, request.JournalError(err)
	}
	p := liveProgress{ops: len(ops)}
	for _, o := range ops {
		st, err := m.runner.Status(ctx, o.ID)
		if err != nil {
			return p, request.JournalError(err)
		}
		done := st.State == op.StateDone
		switch o.Kind {
		case move.KindLiveTrack:
			p.tracked = true
		case move.KindLiveUntrack:
			p.over = p.over || done
		case move.KindLiveLast:
			p.lastCopied = p.lastCopied || done
		case move.KindLiveLastRead:
			if done {
				p.read = &move.LiveInput{}
				if err := json.Unmarshal(o.Input, p.read); err != nil {
					return p, fmt.Errorf("decode the input of op %s: %w", o.ID, err)
				}
			}
		}
	}
	return p, nil
}
