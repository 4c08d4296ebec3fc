// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

const restoreEvery = time.Minute

// Run returns disks to guests that released them after the detach was undone, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	events := m.env.Domains.Events(ctx)
	tick := time.NewTicker(restoreEvery)
	defer tick.Stop()
	for {
		if err := m.env.Unplugs.load(ctx); err != nil && ctx.Err() == nil {
			m.env.log.Warn("cannot read which detaches were given up", "err", err)
		}
		m.restoreUnplugged(ctx)
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

func (m *Manager) restoreUnplugged(ctx context.Context) {
	pending := m.env.Unplugs
	for _, l := range pending.list() {
		in := l.input
		v, err := m.env.look(ctx, &in)
		switch {
		case err != nil:
			continue
		case v.dom == nil || l.asked == (process{}) && !v.active && !v.saved:
			pending.drop(in.AttachmentID)
			continue
		case l.asked != (process{}) && pending.isOver(&l, v): // its requests ended with the process
			if err := pending.end(ctx, &l); err != nil {
				m.env.log.Warn("the journal does not take that an unplug is over", "instance", in.InstanceName, "device", in.Device, "err", err)
			}
			continue
		case !v.active || v.live != absent || v.config != attached || m.admission.AtWork(in.Keys()):
			continue
		}
		att, err := m.env.Registry.Attachment(ctx, in.AttachmentID)
		if err != nil && !request.Lost(err) {
			continue
		}
		pending.drop(in.AttachmentID)
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
		m.env.Unplugs.add(in, process{}) // the requested unplug has happened, so no process is asked
		m.env.log.Error("cannot give a disk back", "instance", in.InstanceName, "device", in.Device, "err", err)
	}
}
