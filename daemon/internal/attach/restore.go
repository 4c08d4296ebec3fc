// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// A guest that did not let go in time was asked all the same, and QEMU forgets no
// request: it may still let go, at its next reboot at the latest. By then the
// detach was given up, and its attachment holds. So it gets the disk back.

// late is the attachments that a guest may lose although it is to keep them.
type late struct {
	mu  sync.Mutex
	all map[string]input // by attachment
}

func (l *late) add(in *input) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string]input{}
	}
	l.all[in.AttachmentID] = *in
}

func (l *late) drop(attachmentID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, attachmentID)
}

func (l *late) list() []input {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]input, 0, len(l.all))
	for _, in := range l.all {
		out = append(out, in)
	}
	return out
}

// lateEvery is how often is looked without an event.
const lateEvery = time.Minute

// Run watches for guests that let go of a disk late, and gives it back to them,
// until ctx ends.
func (g *Manager) Run(ctx context.Context) error {
	events := g.machine.HV.Events(ctx)
	g.recallLate(ctx)
	tick := time.NewTicker(lateEvery)
	defer tick.Stop()
	for {
		g.restoreLate(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case e, open := <-events:
			if !open {
				return nil
			}
			if e.Kind == hv.EventDeviceRemoved || e.Kind == hv.EventLifecycle {
				g.runner.Wake(waitGuest)
			}
		}
	}
}

// recallLate finds in the journal what a daemon before this one expected: the
// attachments whose last detach was undone.
func (g *Manager) recallLate(ctx context.Context) {
	ops, err := g.journal.Ops(ctx, kindDetach, false)
	if err != nil {
		g.log.Warn("cannot read which detaches were given up", "err", err)
		return
	}
	last := map[string]op.Op{}
	for _, o := range ops {
		last[o.Group] = o
	}
	for _, o := range last {
		var in input
		records, err := g.journal.Records(ctx, o.ID)
		if err == nil && slices.ContainsFunc(records, gaveUpOnGuest) && json.Unmarshal(o.Input, &in) == nil {
			g.machine.late.add(&in)
		}
	}
}

// gaveUpOnGuest says whether a record is of a detach that does not wait for its
// guest any more.
func gaveUpOnGuest(r op.Record) bool {
	return r.Step == stepNameDetachLive && r.Kind == op.EventUndoStarted
}

// restoreLate looks at the guests that may have let go, and submits what gives
// the disk back.
func (g *Manager) restoreLate(ctx context.Context) {
	for _, in := range g.machine.late.list() {
		v, err := g.machine.look(ctx, &in)
		switch {
		case err != nil:
			continue
		case v.dom == nil || !v.active && !v.saved:
			g.machine.late.drop(in.AttachmentID) // with the process its requests are gone
			continue
		case !v.active || v.live != absent || v.config != attached || g.isBusy(&in):
			continue
		}
		att, err := g.machine.Registry.Attachment(ctx, in.AttachmentID)
		if err != nil && !lost(err) {
			continue
		}
		g.machine.late.drop(in.AttachmentID)
		if err == nil && att.State == api.AttachmentAttached {
			g.restore(ctx, &in)
		}
	}
}

// isBusy says whether an op is at work on the instance: what it leaves is judged
// when it is over.
func (g *Manager) isBusy(in *input) bool {
	for _, st := range g.runner.Active() {
		if share(st.Op.Keys, in.keys()) {
			return true
		}
	}
	return false
}

func (g *Manager) restore(ctx context.Context, in *input) {
	g.log.Warn("the guest let go of a disk after that was given up; it gets it back", "instance", in.InstanceName, "device", in.Device)
	data, err := json.Marshal(in)
	if err == nil {
		err = g.runner.Submit(ctx, op.Op{
			ID: uuid.NewString(), Kind: kindRestore, Group: in.AttachmentID, Keys: in.keys(), Input: data, CreatedAt: time.Now().UTC(),
		})
	}
	if err != nil {
		g.machine.late.add(in)
		g.log.Error("cannot give a disk back", "instance", in.InstanceName, "device", in.Device, "err", err)
	}
}
