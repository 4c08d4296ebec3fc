// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/registry/internal/store"
)

func (s *Server) migrations(w http.ResponseWriter, r *http.Request) error {
	query, err := httpjson.Query(r, "volume", "all")
	if err != nil {
		return err
	}
	all, err := boolean(query, "all")
	if err != nil {
		return err
	}
	found, err := s.Store.Migrations(r.Context(), query.Get("volume"), all, viewerOf(r))
	if err != nil {
		return err
	}
	for i := range found {
		found[i] = s.withProgress(found[i])
	}
	return httpjson.Write(w, http.StatusOK, "migrations", found)
}

// migration is a migration with what its host last said of its progress.
func (s *Server) migration(ctx context.Context, ref string, as store.Viewer) (api.Migration, error) {
	m, err := s.Store.Migration(ctx, ref, as)
	return s.withProgress(m), err
}

// followed are the states that a host moves on by itself before it tells the
// registry, in their order.
var followed = []api.MigrationState{api.MigrationStarting, api.MigrationStarted, api.MigrationCopying, api.MigrationCopied}

// withProgress adds what the host of an open migration last said of it. Places
// and owner are the registry's; so is the state, but where the host may be ahead.
func (s *Server) withProgress(m api.Migration) api.Migration {
	live, ok := s.Store.LiveMigration(m.ID)
	if !ok || m.State.Final() {
		return m
	}
	if slices.Index(followed, live.State) > slices.Index(followed, m.State) && slices.Contains(followed, m.State) {
		m.State = live.State
	}
	if live.State == m.State {
		m.Phase = live.Phase
	}
	m.BytesDone, m.BytesTotal, m.RateBytesPerSecond = live.BytesDone, live.BytesTotal, live.RateBytesPerSecond
	m.BandwidthBytesPerSecond, m.OverlayBytes = live.BandwidthBytesPerSecond, live.OverlayBytes
	m.StallMS, m.ExposedSeconds = live.StallMS, live.ExposedSeconds
	m.Verify, m.ExternalCopy, m.DeleteSource = live.Verify, live.ExternalCopy, live.DeleteSource
	if m.Error == nil {
		m.Error = live.Error
	}
	return m
}

// watchMigration streams how a migration is, now and whenever that changes, to
// its end. A reader that was cut off asks again: the first line is always how
// things are now.
func (s *Server) watchMigration(w http.ResponseWriter, r *http.Request) error {
	id, viewer := reference(r), viewerOf(r)
	return s.stream(w, r, func(ctx context.Context) (api.Event, bool, error) {
		m, err := s.migration(ctx, id, viewer)
		if err != nil {
			return api.Event{}, false, err
		}
		return api.Event{What: "migration", Object: m.ID, To: string(m.State), Migration: &m}, m.State.Final(), nil
	})
}
