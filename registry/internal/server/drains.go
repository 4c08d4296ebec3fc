// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

type drainAPI struct {
	drains  *workflow.Drains
	hosts   *store.Hosts
	relay   *relay.Relay
	views   *views
	streams *streams
}

func (s *drainAPI) each(r *http.Request, after string, do ledger.Visit[api.Drain]) error {
	return ledger.InChunks(after, func(d *api.Drain) string { return d.ID }, func(after string) ([]api.Drain, bool, error) {
		found, more, err := s.drains.After(r.Context(), after)
		if err != nil {
			return nil, false, err
		}
		for i := range found {
			s.sayWhyVolumesWait(r.Context(), found[i])
		}
		return found, more, s.drains.AddNeeds(r.Context(), found)
	}, do)
}

func (s *drainAPI) show(ctx context.Context, ref string) (api.Drain, error) {
	d, err := s.drains.Get(ctx, ref)
	if err != nil {
		return d, err
	}
	s.sayWhyVolumesWait(ctx, d)
	// An operator decides by this answer whether to remove a pool, so it fails if the obstacles are
	// unknown.
	one := []api.Drain{d}
	err = s.drains.AddNeeds(ctx, one)
	return one[0], err
}

func (s *drainAPI) sayWhyVolumesWait(ctx context.Context, d api.Drain) {
	s.sayWhoIsAway(ctx, d)
	s.sayWhatStands(ctx, d)
}

func (s *drainAPI) sayWhatStands(ctx context.Context, d api.Drain) {
	stopped := map[int]*api.Migration{}
	pending := 0
	for i := range d.Volumes {
		v := &d.Volumes[i]
		if v.State == api.DrainVolumePending {
			pending++
		}
		if v.State != api.DrainVolumeMoving || v.MigrationID == "" {
			continue
		}
		// A failure to read optional information must not fail the view.
		if m, err := s.views.migration(ctx, v.MigrationID, store.Viewer{}); err == nil && m.Stopped() {
			stopped[i] = &m
		}
	}
	waits := ""
	if d.State == api.DrainRunning && pending > 0 && len(stopped) >= d.Parallel {
		waits = "; until then nothing else begins: " + humanize.Count(pending, "pending volume")
	}
	for i, m := range stopped {
		again, back := m.Cures()
		if back != "" {
			again += " (or take the move back: " + back + ")"
		}
		code := api.CodeNeedsOperator
		if m.Error != nil {
			code = m.Error.Code
		}
		d.Volumes[i].Error = api.Errorf(code, "%s. Next: %s%s", m.StoppedLine(), again, waits).With("migration_id", m.ID)
	}
}

func (s *drainAPI) sayWhoIsAway(ctx context.Context, d api.Drain) {
	if d.State != api.DrainRunning {
		return
	}
	away := map[string]*api.Error{}
	for i := range d.Volumes {
		v := &d.Volumes[i]
		if v.State != api.DrainVolumePending || v.Error != nil {
			continue
		}
		why, looked := away[v.Host]
		if !looked {
			why = s.away(ctx, v.Host)
			away[v.Host] = why
		}
		v.Error = why
	}
}

// away returns why a host cannot be asked, nil if it can or if this is unknown: the view must not
// fail.
func (s *drainAPI) away(ctx context.Context, name string) *api.Error {
	host, err := s.hosts.Get(ctx, name)
	switch {
	case api.CodeOf(err) != "":
		return nil
	case host.Status == api.HostFenced:
		return api.Errorf(api.CodeHypervisorUnavailable, "host %s is fenced; its volumes wait until it comes back", name)
	case !s.relay.Present(host.ID):
		return api.Errorf(api.CodeHypervisorUnavailable, "host %s is not there; its volumes wait for it", name)
	}
	return nil
}

func (s *drainAPI) start(r *http.Request, call store.Call, in api.PoolDrain) (api.Drain, error) {
	return s.drains.Create(r.Context(), call, httpjson.Reference(r), in)
}

func (s *drainAPI) set(to string) func(context.Context, store.Call, string, routes.None) (api.Drain, error) {
	return func(ctx context.Context, call store.Call, ref string, _ routes.None) (api.Drain, error) {
		return s.drains.SetState(ctx, call, ref, to)
	}
}

func (s *drainAPI) watch(w http.ResponseWriter, r *http.Request) error {
	id := httpjson.Reference(r)
	return s.streams.send(w, r, func(ctx context.Context) (api.Event, bool, error) {
		d, err := s.show(ctx, id)
		if err != nil {
			return api.Event{}, false, err
		}
		return api.Event{What: "drain", Object: d.ID, To: d.State, Drain: &d}, d.State == api.DrainDone || d.State == api.DrainStopped, nil
	})
}
