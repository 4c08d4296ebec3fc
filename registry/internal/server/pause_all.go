// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// migrateVolume passes a migration to a host. A move with all guests paused, or a live move, is led
// by the registry, and the answer has only its migration.
func (s *Server) migrateVolume(w http.ResponseWriter, r *http.Request) error {
	call, err := readCall(r)
	if err != nil {
		return err
	}
	in, body, err := readBody[api.MigrationTarget](r)
	if err != nil {
		return err
	}
	switch {
	case in.PauseAll, in.Method == api.MethodLive:
	case !call.Administers():
		_, err := s.Store.Volumes.Get(r.Context(), httpjson.Reference(r), actingViewer(r, call))
		return cmp.Or(err, errHostMoves)
	default:
		return s.pass(w, r, asAsked(r, "", body), call.Key, resolving(r, "", in, s.toMigrate))
	}
	m, err := relay.SharedMoves{Hosts: s.Store.Hosts, Pauses: s.Store.Pauses, LiveMoves: s.Store.LiveMoves, Relay: s.Relay}.Begin(r.Context(), call, httpjson.Reference(r), in)
	if err != nil {
		return err
	}
	return routes.MigrateVolume.Write(w, http.StatusAccepted, m)
}

// actingViewer returns the viewer that bounds a caller's requests: a host may name what it sees, an
// administrator everything.
func actingViewer(r *http.Request, call store.Call) store.Viewer {
	if call.Administers() {
		return store.Viewer{}
	}
	return viewerOf(r)
}

// errHostMoves refuses a host's request that the registry would pass to a host: only operators may
// make it.
var errHostMoves error = api.Errorf(api.CodeConflict, "a host moves its volumes itself; ask at the socket of its daemon")

// orPaused handles migrations that the registry leads, and leaves others to the route.
func (s *Server) orPaused(route httpjson.Route, do func(context.Context, store.Call, string) (workflow.Pause, error)) httpjson.Route {
	byHost := route.Handler
	route.Handler = func(w http.ResponseWriter, r *http.Request) error {
		call, err := readCall(r)
		if err != nil {
			return err
		}
		m, err := s.Store.Migrations.Get(r.Context(), httpjson.Reference(r), actingViewer(r, call))
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
			end = s.Store.Pauses.Discard
		}
		p, err := end(r.Context(), call, m.ID)
		if err != nil {
			return err
		}
		return routes.CompleteMigration.Write(w, http.StatusAccepted, p.Migration)
	}
	return route
}

func (s *Server) cancelPaused(ctx context.Context, call store.Call, ref string) (workflow.Pause, error) {
	return s.Store.Pauses.Cancel(ctx, call, ref, nil)
}

// notPaused refuses a request that a move led by the registry does not support.
func (s *Server) notPaused(route httpjson.Route, verb string) httpjson.Route {
	byHost := route.Handler
	route.Handler = func(w http.ResponseWriter, r *http.Request) error {
		m, err := s.Store.Migrations.Get(r.Context(), httpjson.Reference(r), store.Viewer{})
		if err != nil || !m.LedByRegistry() {
			return byHost(w, r)
		}
		return api.Errorf(api.CodeStateForbidden, "cannot %s migration %s of volume %s: the registry leads it, and it goes on by itself; it can be cancelled until the volume has moved",
			verb, m.ID, m.VolumeName)
	}
	return route
}

// pausedNow completes a move that the registry leads: the copy host reports the progress, and the
// hosts that it waits for are looked up.
func (s *Server) pausedNow(ctx context.Context, m api.Migration) api.Migration {
	live, ok := s.Store.Progress.Of(m.ID)
	switch {
	case m.State == api.MigrationCompleted || m.State == api.MigrationCompleting:
		m.BytesDone = m.BytesTotal
	case ok && m.Phase == string(workflow.PauseCopying) && m.Method == api.MethodSave:
		m.BytesDone, m.RateBytesPerSecond = live.BytesDone, live.RateBytesPerSecond
	}
	if m.Error == nil && !m.State.Final() {
		m.Error = s.waitsFor(ctx, m.ID)
	}
	return m
}

// waitedFor reports whether a move waits for the host of an instance.
func waitedFor(p workflow.Pause, g workflow.PauseInstance) bool {
	if g.Lost {
		return false
	}
	switch p.Phase {
	case workflow.PauseChecking:
		return g.State == workflow.PausePending && p.Live == nil
	case workflow.PauseSuspending:
		return g.State == workflow.PauseChecked
	case workflow.PauseSaving:
		return g.State == workflow.PauseSuspended
	case workflow.PauseRestoring, workflow.PauseCancelling, workflow.PauseAgain:
		return g.State != workflow.PauseRestored && (g.State != workflow.PauseReady || p.Resuming)
	case workflow.PauseCopying, workflow.PauseMaking, workflow.PauseTracking, workflow.PauseSwapping, workflow.PauseLast, workflow.PauseDone:
	}
	return false
}

// ends reports whether a move in this phase removes its remaining end.
func ends(phase workflow.PausePhase) bool {
	return phase == workflow.PauseCancelling || phase == workflow.PauseRestoring
}

// waitsFor names the disconnected hosts that a move led by the registry waits for, nil if there are
// none. A failure to find out must not fail the view.
func (s *Server) waitsFor(ctx context.Context, id string) *api.Error {
	p, err := s.Store.Pauses.Get(ctx, id)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	away := []string{}
	for _, g := range p.Instances {
		if waitedFor(p, g) && !s.Relay.Present(g.Host.ID) {
			away = append(away, g.Host.Name+" (instance "+g.Name+")")
		}
	}
	if p.Live != nil {
		for _, h := range p.Live.Hosts {
			if _, left := p.LiveNext(h); left && !s.Relay.Present(h.ID) {
				away = append(away, h.Name+" (what its guests write)")
			}
		}
	}
	if (p.Phase == workflow.PauseCopying && p.Live == nil || p.DropEnd != "" && ends(p.Phase)) && !s.Relay.Present(p.CopyHost.ID) {
		away = append(away, p.CopyHost.Name+" (the copy)")
	}
	if len(away) == 0 {
		return nil
	}
	return api.Errorf(api.CodeHypervisorUnavailable, "it waits for what is not there: host %s; fence it if it does not come back", strings.Join(away, ", host "))
}
