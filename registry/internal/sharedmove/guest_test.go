// SPDX-License-Identifier: Apache-2.0

package sharedmove_test

import (
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// together is the longest time between the resumes of guests at the end of a move.
const together = 30 * time.Second

// permitted asks the registry, as a daemon does immediately before the effect.
func (d *daemon) permitted(migration, guest, to string) *api.Error {
	ctx := d.site.T.Context()
	h, err := d.site.Store.Hosts.Get(ctx, d.Name)
	if err == nil {
		_, err = d.site.Store.Pauses.Permit(ctx, store.Call{}, migration, api.PausePermit{InstanceID: guest, To: to, Host: d.Name, Epoch: h.Epoch})
	}
	if err != nil {
		return api.AsError(err)
	}
	return nil
}

func (d *daemon) suspend(migration, id string) *api.Error {
	if err := d.permitted(migration, id, api.PermitSuspend); err != nil {
		return err
	}
	if d.site.stopped.IsZero() {
		d.site.stopped = time.Now()
	}
	d.guests[id].running, d.guests[id].byHand = false, false
	return nil
}

func (d *daemon) save(id string) *api.Error {
	g := d.guests[id]
	if !g.process || g.memory { // it may already be so: the host looks
		return nil
	}
	d.site.eachOther(id, func(name string, o *guest) {
		if o.running && !o.byHand {
			d.site.wrong("guest %s is saved while guest %s runs", id, name)
		}
	})
	if g.running {
		d.site.wrong("guest %s is saved and was not suspended", id)
	}
	g.process, g.memory = false, true
	return nil
}

func (d *daemon) restore(in api.InstanceRestore, id string) *api.Error {
	g := d.guests[id]
	if !d.site.images[in.Location.Path] {
		d.site.wrong("guest %s is to be restored on %s, which is not there", id, in.Location.Path)
	}
	switch {
	case in.DiscardMemory && !g.running:
		g.process, g.memory, g.off, g.at = false, false, true, in.Location.Path
	case g.process && g.at != in.Location.Path:
		d.site.wrong("guest %s is on %s and is to be restored on %s", id, g.at, in.Location.Path)
	case !g.process && g.memory:
		return d.fromMemory(in.MigrationID, id, in.Location)
	}
	g.at = in.Location.Path
	return nil
}

// fromMemory restores a saved guest, paused.
func (d *daemon) fromMemory(migration, id string, at api.Location) *api.Error {
	if err := d.permitted(migration, id, api.PermitRestore); err != nil {
		return err
	}
	d.site.eachOther(id, func(name string, o *guest) {
		if o.running {
			d.site.wrong("guest %s is restored from its memory, and guest %s has run on since", id, name)
		}
	})
	g := d.guests[id]
	g.process, g.at = true, at.Path
	return nil
}

func (d *daemon) resume(migration, id string, at api.Location) *api.Error {
	g := d.guests[id]
	if !g.process && g.memory { // its host was rebooted since it was restored
		if err := d.fromMemory(migration, id, at); err != nil {
			return err
		}
	}
	if !g.process || g.running {
		return nil
	}
	if err := d.permitted(migration, id, api.PermitResume); err != nil {
		return err
	}
	if g.at != at.Path {
		d.site.wrong("guest %s runs on at %s, and the volume is at %s", id, g.at, at.Path)
	}
	d.site.eachOther(id, func(name string, o *guest) {
		if ran := time.Since(later(o.since, d.site.stopped)); o.running && ran > together {
			d.site.wrong("guest %s runs on, and guest %s has run for %s", id, name, ran)
		}
	})
	d.site.noneIsLeftBehind(migration)
	g.running, g.memory, g.since = true, false, time.Now()
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// eachOther calls yield with all guests except one, of hosts that were not fenced.
func (s *site) eachOther(id string, yield func(name string, g *guest)) {
	for _, h := range s.hosts {
		for name, g := range h.guests {
			if name != id && !h.fenced {
				yield(name, g)
			}
		}
	}
}

// noneIsLeftBehind records a violation if a guest is resumed while another must still be restored.
func (s *site) noneIsLeftBehind(migration string) {
	p, err := s.Store.Pauses.Get(s.T.Context(), migration)
	if err != nil {
		s.wrong("read move: %v", err)
	}
	for _, g := range p.Instances {
		if g.State == workflow.PauseSaved && g.Error == nil && !g.Lost && !g.Discard {
			s.wrong("a guest runs on while guest %s has still to be restored", g.Name)
		}
	}
}

// reboot is a power loss and a restart of the host.
func (d *daemon) reboot() {
	d.Away()
	d.site.mu.Lock()
	for _, g := range d.guests {
		g.process, g.running, g.off = false, false, g.off || !g.memory
	}
	d.site.mu.Unlock()
	d.Start()
}
