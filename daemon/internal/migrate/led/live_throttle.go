// SPDX-License-Identifier: Apache-2.0

package led

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

// Before any change the journal has a round's limit, in the op's input, and the guest's earlier
// limit, in the output of the op that tracked the guest. So each op that removes the limit knows
// the earlier limit after any crash. A save image would contain the limit, so it is removed before
// the guest is saved.

// throttle limits the guests' writes if the request for the round has a limit. It keeps a lower
// limit that the owner has set. It returns remarks about other disks that get the limit too.
func (e *Env) throttle(ctx context.Context, in *move.LiveInput, h *move.LiveHistory) (with []string, err error) {
	if in.WriteBytesPerSecond == 0 {
		return nil, nil
	}
	for _, g := range in.Guests {
		if before := h.Before[g.ID].Limit; before > 0 && before <= in.WriteBytesPerSecond {
			continue
		}
		dom, err := e.sameProcess(ctx, in, g, h.Tracked)
		if err != nil {
			return nil, err
		}
		if dom == nil {
			continue
		}
		if others := dom.LimitedWith(g.Target); len(others) > 0 {
			e.blockjob.WarnGroup(in.MigrationID, g.Name, g.Target, others)
			with = append(with, fmt.Sprintf("the limit on the writes of disk %s of instance %s is of its throttle group, so it holds back %s too", g.Target, g.Name, strings.Join(others, ", ")))
		}
		if err := e.limits.PutWriteLimit(ctx, g.ID, g.Target, in.WriteBytesPerSecond); err != nil {
			return nil, e.liveHVError(in, err)
		}
	}
	return with, nil
}

// unthrottle restores the guests' earlier limits. It leaves a limit that another program has set
// since. A limit ends with the guest's process.
func (e *Env) unthrottle(ctx context.Context, in *move.LiveInput, h *move.LiveHistory) error {
	if len(h.Throttles) == 0 {
		return nil
	}
	for _, g := range in.Guests {
		before, tracked := h.Before[g.ID]
		if !tracked || before.Process == "" {
			continue
		}
		now, err := e.limits.LiveWriteLimit(ctx, g.ID, g.Target)
		if err == nil && now != before.Limit && slices.Contains(h.Throttles, now) {
			err = e.limits.PutWriteLimit(ctx, g.ID, g.Target, before.Limit)
		}
		if errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
			continue
		}
		if err != nil {
			return e.move.HVError(err)
		}
	}
	return nil
}
