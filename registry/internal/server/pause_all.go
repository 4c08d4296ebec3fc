// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

type pauseAPI struct {
	migrations *store.Migrations
	pauses     *workflow.Pauses
	hosts      *store.Hosts
	relay      *relay.Relay
	log        *slog.Logger
}

// orPaused handles migrations that the registry leads, and leaves others to the route.
func (s *pauseAPI) orPaused(route httpjson.Route, do func(context.Context, store.Call, string) (workflow.Pause, error)) httpjson.Route {
	byHost := route.Handler
	route.Handler = func(w http.ResponseWriter, r *http.Request) error {
		call, err := readCall(r)
		if err != nil {
			return err
		}
		m, err := s.migrations.Get(r.Context(), httpjson.Reference(r), actingViewer(r, call))
		switch {
		case err == nil && m.LedByRegistry():
		case !call.Administers():
			return cmp.Or(err, errHostMoves)
		default:
			return byHost(w, r) // it has its own errors
		}
		in, _, err := readBody[api.PauseEnd](r)
		if err != nil {
			return err
		}
		end := do // do must not change for later requests
		if in.DiscardMemory {
			end = s.pauses.Discard
		}
		p, err := end(r.Context(), call, m.ID)
		if err != nil {
			return err
		}
		return routes.CompleteMigration.Write(w, http.StatusAccepted, p.Migration)
	}
	return route
}

func (s *pauseAPI) cancel(ctx context.Context, call store.Call, ref string) (workflow.Pause, error) {
	return s.pauses.Cancel(ctx, call, ref, nil)
}

func (s *pauseAPI) notPaused(route httpjson.Route, verb string) httpjson.Route {
	byHost := route.Handler
	route.Handler = func(w http.ResponseWriter, r *http.Request) error {
		m, err := s.migrations.Get(r.Context(), httpjson.Reference(r), store.Viewer{})
		if err != nil || !m.LedByRegistry() {
			return byHost(w, r)
		}
		return api.Errorf(api.CodeStateForbidden, "cannot %s migration %s of volume %s: the registry leads it, and it goes on by itself; it can be cancelled until the volume has moved",
			verb, m.ID, m.VolumeName)
	}
	return route
}
