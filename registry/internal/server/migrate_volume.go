// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/store"
)

// migrate passes a migration to a host. The registry itself leads a move with all guests paused
// and a live move; their answer has the migration and no op.
func (s *volumeAPI) migrate(w http.ResponseWriter, r *http.Request) error {
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
		_, err := s.volumes.Get(r.Context(), httpjson.Reference(r), actingViewer(r, call))
		return cmp.Or(err, errHostMoves)
	default:
		return s.forward.pass(w, r, asAsked(r, "", body), call.Key, resolving(r, "", in, s.targets.toMigrate))
	}
	m, err := s.moves.Begin(r.Context(), call, httpjson.Reference(r), in)
	if err != nil {
		return err
	}
	return routes.MigrateVolume.Write(w, http.StatusAccepted, m)
}

// actingViewer returns the viewer for a caller's requests: a host may name objects that it sees,
// an administrator all objects.
func actingViewer(r *http.Request, call store.Call) store.Viewer {
	if call.Administers() {
		return store.Viewer{}
	}
	return viewerOf(r)
}

// errHostMoves refuses a host's request that the registry would pass to a host: only operators may
// make it.
var errHostMoves error = api.Errorf(api.CodeConflict, "a host moves its volumes itself; ask at the socket of its daemon")
