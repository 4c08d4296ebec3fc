// SPDX-License-Identifier: Apache-2.0

package livewalk_test

import (
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// paused returns the action of a call about the pause; nil for other calls.
func (d *daemon) paused(verb, id string, body []byte) func() (bool, *api.Error) {
	var migration string
	do := map[string]func(*guest) *api.Error{}
	switch verb {
	case "suspend":
		var in api.InstanceSuspend
		d.read(body, &in)
		migration = in.MigrationID
		do[verb] = func(g *guest) *api.Error { return d.suspend(migration, g) }
	case "save":
		do[verb] = d.save
	case "restore":
		var in api.InstanceRestore
		d.read(body, &in)
		do[verb] = func(g *guest) *api.Error { return d.restore(in, g) }
	case "resume":
		var in api.InstanceResume
		d.read(body, &in)
		do[verb] = func(g *guest) *api.Error { return d.resume(in.MigrationID, g) }
	case "drop-saved":
		var in api.DropSaved
		d.read(body, &in)
		return once(func() *api.Error { return d.drop(in) })
	}
	at := slices.IndexFunc(d.guests, func(g *guest) bool { return storetest.NamedID(storetest.InstanceKind, g.name) == id })
	if at < 0 || do[verb] == nil {
		return nil
	}
	return once(func() *api.Error { return do[verb](d.guests[at]) })
}

// permitted asks the registry, as a daemon does immediately before the effect.
func (d *daemon) permitted(migration string, g *guest, to string) *api.Error {
	in := api.PausePermit{InstanceID: storetest.NamedID(storetest.InstanceKind, g.name), To: to, Host: d.Name, Epoch: 1}
	if _, err := d.site.Store.Pauses.Permit(d.site.T.Context(), store.Call{}, migration, in); err != nil {
		return api.AsError(err)
	}
	return nil
}

func (d *daemon) suspend(migration string, g *guest) *api.Error {
	if err := d.permitted(migration, g, api.PermitSuspend); err != nil {
		return err
	}
	g.inPause = true
	if g.process != 0 {
		d.site.pause(g)
	}
	return nil
}

func (d *daemon) save(g *guest) *api.Error {
	d.site.each(func(_ *daemon, o *guest) {
		if o.runs() {
			d.site.wrong("guest %s is saved while guest %s runs", g.name, o.name)
		}
	})
	if g.process != 0 {
		g.dies()
		g.memory = true
	}
	return nil
}

func (d *daemon) restore(in api.InstanceRestore, g *guest) *api.Error {
	s := d.site
	switch {
	case in.DiscardMemory && !g.runs():
		g.dies()
		g.memory = false
	case g.memory:
		if err := d.permitted(in.MigrationID, g, api.PermitRestore); err != nil {
			return err
		}
		s.begin(g)
		g.still, g.memory = true, false
	}
	if g.process != 0 && !g.still {
		s.wrong("guest %s is to be restored and runs", g.name)
	}
	if g.at = in.Location.Path; g.at != srcPath && !in.DiscardMemory && *s.images[g.at] != *s.images[srcPath] && s.acked != *s.images[g.at] {
		s.wrong("guest %s is restored at dst, which has %v, and src has %v", g.name, *s.images[g.at], *s.images[srcPath])
	}
	return nil
}

func (d *daemon) resume(migration string, g *guest) *api.Error {
	if g.process == 0 || g.runs() {
		g.inPause = false
		return nil
	}
	if err := d.permitted(migration, g, api.PermitResume); err != nil {
		return err
	}
	d.site.each(func(_ *daemon, o *guest) {
		if o.runs() && o.at != g.at {
			d.site.wrong("guest %s runs on at %s, and guest %s runs at %s", g.name, g.at, o.name, o.at)
		}
	})
	g.still, g.inPause = false, false
	return nil
}

func (d *daemon) drop(in api.DropSaved) *api.Error {
	path := in.Location.Path
	if path == "" {
		path = "/" + in.Location.Pool + "/" + in.Location.Name
	}
	for host, other := range d.site.hosts {
		if other.held != nil {
			d.site.wrong("R6: %s is removed while host %s has a block in its hands", path, host)
		}
	}
	d.site.each(func(_ *daemon, g *guest) {
		if g.at == path {
			d.site.wrong("%s is removed, and guest %s has it", path, g.name)
		}
	})
	delete(d.site.images, path)
	return nil
}
