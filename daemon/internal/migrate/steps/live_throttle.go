// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// What a round puts on the writes of a guest is in the input of its op, and what the guest had
// before in the output of the op that tracked it: both are in the journal before anything is
// changed. So each of the ops that take the limit off, and each repetition of them, knows what
// to put back, whatever has died meanwhile. The limit is in the process alone, and comes into
// a save image with the live definition: it is off before the guest is saved.

// throttle limits the writes of the guests for a round that asks for it. A lower limit of their
// owner stays. It says of each guest which other disks have the limit too.
func (e *Env) throttle(ctx context.Context, in *LiveInput, h *LiveHistory) (with []string, err error) {
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
			e.warnGroup(in.MigrationID, g.Name, g.Target, others)
			with = append(with, fmt.Sprintf("the limit on the writes of disk %s of instance %s is of its throttle group, so it holds back %s too", g.Target, g.Name, strings.Join(others, ", ")))
		}
		if err := e.hv.PutWriteLimit(ctx, g.ID, g.Target, in.WriteBytesPerSecond); err != nil {
			return nil, e.liveHVError(in, err)
		}
	}
	return with, nil
}

// unthrottle puts back the limits that the guests had. One that somebody has changed since is
// left as it is, and a process that is gone took ours with it.
func (e *Env) unthrottle(ctx context.Context, in *LiveInput, h *LiveHistory) error {
	if len(h.Throttles) == 0 {
		return nil
	}
	for _, g := range in.Guests {
		before, tracked := h.Before[g.ID]
		if !tracked || before.Process == "" {
			continue
		}
		now, err := e.hv.LiveWriteLimit(ctx, g.ID, g.Target)
		if err == nil && now != before.Limit && slices.Contains(h.Throttles, now) {
			err = e.hv.PutWriteLimit(ctx, g.ID, g.Target, before.Limit)
		}
		if errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
			continue
		}
		if err != nil {
			return e.hvError(err)
		}
	}
	return nil
}
