// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// A guest that did not let go in time was asked all the same, and QEMU forgets no
// request: it may still let go, at its next reboot at the latest. By then the
// detach was given up, and its attachment holds. So it gets the disk back.

// late is the attachments that a guest may lose although it is to keep them.
type late struct {
	recalling sync.Mutex
	recalled  bool // what the journal knows is in here

	mu  sync.Mutex
	all map[string]lateInput // by attachment
}

// lateInput is such an attachment. Asked is the process that was asked to let go of
// it and has not answered.
type lateInput struct {
	input
	asked process
}

// process tells one process of a domain from the next; none is the zero one.
type process struct {
	// Boot is of this host, since libvirt counts anew after it.
	Boot string `json:"boot,omitempty"`
	Run  int    `json:"run,omitempty"`
	// Saved: it was saved, and what is restored has its requests.
	Saved bool `json:"saved,omitempty"`
}

func (l *late) add(in *input, asked process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string]lateInput{}
	}
	asked = cmp.Or(asked, l.all[in.AttachmentID].asked) // by a detach before
	l.all[in.AttachmentID] = lateInput{*in, asked}
}

// saved keeps that the domain of an attachment was saved.
func (l *late) saved(attachmentID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in, ok := l.all[attachmentID]; ok && in.asked != (process{}) {
		in.asked.Saved = true
		l.all[attachmentID] = in
	}
}

func (l *late) drop(attachmentID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, attachmentID)
}

func (l *late) list() []lateInput {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.all))
}

// lateEvery is how often is looked without an event.
const lateEvery = time.Minute

// Run watches for guests that let go of a disk late, and gives it back to them,
// until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	events := m.env.HV.Events(ctx)
	tick := time.NewTicker(lateEvery)
	defer tick.Stop()
	for {
		if err := m.recallLate(ctx); err != nil && ctx.Err() == nil {
			m.env.log.Warn("cannot read which detaches were given up", "err", err)
		}
		m.restoreLate(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case e, open := <-events:
			if !open {
				return nil
			}
			if e.Kind == hv.EventDeviceRemoved || e.Kind == hv.EventLifecycle {
				m.admission.Runner.Wake(waitGuest)
			}
		}
	}
}

// recallLate finds in the journal, once, what a daemon before this one expected: the
// attachments whose last detach was undone.
func (m *Manager) recallLate(ctx context.Context) error {
	late := &m.env.late
	late.recalling.Lock()
	defer late.recalling.Unlock()
	if late.recalled {
		return nil
	}
	ops, err := m.journal.Ops(ctx, kindDetach, false)
	if err != nil {
		return err
	}
	last := map[string]op.Op{}
	for _, o := range ops {
		last[o.Group] = o
	}
	for _, o := range last {
		records, err := m.journal.Records(ctx, o.ID)
		if err != nil {
			return err
		}
		var in input
		if asked, gaveUp := howItEnded(records); gaveUp && json.Unmarshal(o.Input, &in) == nil {
			late.add(&in, asked)
		}
	}
	late.recalled = true
	return nil
}

// howItEnded says of a detach whether it asked its guest, and whether it does not
// wait for it any more.
func howItEnded(records []op.Record) (asked process, gaveUp bool) {
	for _, r := range records {
		if r.Step != stepNameDetachLive {
			continue
		}
		var note unplugNote
		if r.Kind == op.EventNoted && json.Unmarshal(r.Data, &note) == nil {
			asked = cmp.Or(note.Asked, asked)
		}
		gaveUp = gaveUp || r.Kind == op.EventUndoStarted
	}
	return asked, gaveUp
}

// MayMove refuses to move a volume whose guest was asked to let go of it and did not:
// it may still do so at any time, and QEMU would lose the disk in the middle of the
// move, with its overlay or its block job. The next start of the guest ends that.
func (m *Manager) MayMove(ctx context.Context, volumeID string) error {
	if err := m.recallLate(ctx); err != nil {
		return api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err)
	}
	for _, in := range m.env.late.list() {
		if in.VolumeID != volumeID || in.asked == (process{}) {
			continue
		}
		v, err := m.env.look(ctx, &in.input)
		if err != nil {
			return api.Errorf(api.CodeHypervisorUnavailable, "cannot look at instance %s: %v", in.InstanceName, err)
		}
		asked := in.asked.Saved || in.asked == m.env.processOf(v)
		if v.saved || v.active && asked {
			return api.Errorf(api.CodeInstanceBusy,
				"cannot move volume %s: a detach was given up because instance %s did not answer, and it may still let go of disk %s at any time, at its next reboot at the latest; detach the volume, or stop the instance and start it again, then move it",
				in.VolumeName, in.InstanceName, in.Device)
		}
	}
	return nil
}

// processOf is the process of an active domain.
func (e *env) processOf(v *view) process { return process{Boot: e.bootID, Run: v.dom.Run} }

// restoreLate looks at the guests that may have let go, and submits what gives
// the disk back.
func (m *Manager) restoreLate(ctx context.Context) {
	for _, l := range m.env.late.list() {
		in := l.input
		v, err := m.env.look(ctx, &in)
		switch {
		case err != nil:
			continue
		case v.dom == nil || !v.active && !v.saved:
			m.env.late.drop(in.AttachmentID) // with the process its requests are gone
			continue
		case v.saved:
			m.env.late.saved(in.AttachmentID)
			continue
		case !v.active || v.live != absent || v.config != attached || m.admission.AtWork(in.Keys()):
			continue
		}
		att, err := m.env.Registry.Attachment(ctx, in.AttachmentID)
		if err != nil && !request.Lost(err) {
			continue
		}
		m.env.late.drop(in.AttachmentID)
		if err == nil && att.State == api.AttachmentAttached {
			m.restore(ctx, &in)
		}
	}
}

func (m *Manager) restore(ctx context.Context, in *input) {
	m.env.log.Warn("the guest let go of a disk after that was given up; it gets it back", "instance", in.InstanceName, "device", in.Device)
	data, err := json.Marshal(in)
	if err == nil {
		err = m.admission.Runner.Submit(ctx, op.Op{
			ID: uuid.NewString(), Kind: kindRestore, Group: in.AttachmentID, Keys: in.Keys(), Input: data, CreatedAt: time.Now().UTC(),
		})
	}
	if err != nil {
		m.env.late.add(in, process{}) // what was asked for has happened
		m.env.log.Error("cannot give a disk back", "instance", in.InstanceName, "device", in.Device, "err", err)
	}
}
