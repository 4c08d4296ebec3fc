// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

type adoption func(ctx context.Context, call store.Call, id string, saved map[string][]api.SavedInstance, present []string) (workflow.Pause, error)

// orAdopted ends a move with all guests paused that hosts know and the registry does not know,
// because its database was restored from a backup. It does so if of returns true for any reported
// instance of the move; the route handles all other migrations.
func (s *pauseAPI) orAdopted(route httpjson.Route, of func(api.SavedInstance) bool, adopt adoption) httpjson.Route {
	known := route.Handler
	route.Handler = func(w http.ResponseWriter, r *http.Request) error {
		id := httpjson.Reference(r)
		_, err := s.migrations.Get(r.Context(), id, store.Viewer{})
		if _, noID := uuid.Parse(id); noID != nil || api.CodeOf(err) != api.CodeNotFound {
			return known(w, r)
		}
		call, err := readCall(r)
		if err != nil {
			return err
		}
		if _, _, err := readBody[routes.None](r); err != nil {
			return err
		}
		if !call.Administers() {
			return known(w, r)
		}
		saved, present, err := s.savedFor(r.Context(), call.Who, id)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(saved))...), of) {
			return known(w, r)
		}
		p, err := adopt(r.Context(), call, id, saved, present)
		if err != nil {
			return err
		}
		return routes.CancelMigration.Write(w, http.StatusAccepted, p.Migration)
	}
	return route
}

func asleep(g api.SavedInstance) bool { return g.Asleep }

// anyOf accepts every saved instance: all guests may already run at dst.
func anyOf(api.SavedInstance) bool { return true }

// savedFor asks every connected host for its record of a move with all guests paused. It omits
// hosts that do not answer.
func (s *pauseAPI) savedFor(ctx context.Context, who, id string) (saved map[string][]api.SavedInstance, present []string, err error) {
	hosts, err := s.hosts.All(ctx)
	if err != nil {
		return nil, nil, err
	}
	saved = map[string][]api.SavedInstance{}
	var (
		mu    sync.Mutex
		asked sync.WaitGroup
	)
	for _, h := range hosts {
		if h.Status == api.HostFenced || !s.relay.Present(h.ID) {
			continue
		}
		present = append(present, h.ID)
		asked.Go(func() {
			answer, err := askHost(ctx, s.relay, who, h, routes.ListSaved, id)
			if err != nil {
				s.log.Warn("a host does not say what it has saved for a migration", "host", h.Name, "migration", id, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			saved[h.ID] = answer
		})
	}
	asked.Wait()
	return saved, present, nil
}
