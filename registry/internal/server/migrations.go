// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// eachMigration visits migrations as stored; withProgress adds the rest.
func (s *Server) eachMigration(r *http.Request, after string, do ledger.Visit[api.Migration]) error {
	query := r.URL.Query()
	all, err := boolean(query, "all")
	if err != nil {
		return err
	}
	return s.Store.Migrations.Each(r.Context(), query.Get("volume"), all, viewerOf(r), after, do)
}

// openMigrations returns the open migrations of all hosts.
func (s *Server) openMigrations(ctx context.Context) ([]api.Migration, error) {
	open, err := s.Store.Migrations.All(ctx, "", false, store.Viewer{})
	for i := range open {
		open[i] = s.withProgress(ctx, open[i])
	}
	return open, err
}

// migrationNow returns a migration with its last reported progress.
func (s *Server) migrationNow(ctx context.Context, ref string, as store.Viewer) (api.Migration, error) {
	m, err := s.Store.Migrations.Get(ctx, ref, as)
	if err != nil {
		return m, err
	}
	return s.withProgress(ctx, m), nil
}

// migration is migrationNow. For an ended migration it also asks the host, if connected: only its
// journal has the cost of the migration.
func (s *Server) migration(ctx context.Context, ref string, as store.Viewer) (api.Migration, error) {
	m, err := s.migrationNow(ctx, ref, as)
	if err == nil && m.LedByRegistry() {
		if m.PauseSteps, err = s.Store.Pauses.Steps(ctx, m.ID); err != nil {
			return m, err
		}
		if stall := float64(api.StoodStill(m.PauseSteps).Milliseconds()); stall > 0 {
			m.StallMS.Switch = &stall
		}
	}
	if err != nil || as.HostID != "" || !m.State.Final() || m.LedByRegistry() {
		return m, err
	}
	host, err := s.Store.Hosts.Get(ctx, m.Host)
	if err != nil || host.Status == api.HostFenced || !s.Relay.Present(host.ID) {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	end, err := askHost(ctx, s, registryCaller, host, routes.ShowMigration, m.ID)
	if err != nil || end.ID != m.ID {
		return m, nil //nolint:nilerr // the registry knows how it ended; the rest is a courtesy
	}
	return withHostView(m, validate.ReportedMigration(end)), nil
}

const (
	// endTimeout bounds the wait for the cost of an ended migration.
	endTimeout = 2 * time.Second
	// registryCaller is the caller's name when the registry itself asks a host.
	registryCaller = "the registry"
)

// followed has the states, in order, that a host enters before it notifies the registry.
var followed = []api.MigrationState{api.MigrationStarting, api.MigrationStarted, api.MigrationCopying, api.MigrationCopied}

// withProgress adds the last reported progress of an open migration. Locations and host are the
// registry's, and so is the state unless the host may be ahead.
func (s *Server) withProgress(ctx context.Context, m api.Migration) api.Migration {
	if m.LedByRegistry() {
		return s.pausedNow(ctx, m)
	}
	live, ok := s.Store.Progress.Of(m.ID)
	if !ok || m.State.Final() {
		return m
	}
	if slices.Index(followed, live.State) > slices.Index(followed, m.State) && slices.Contains(followed, m.State) {
		m.State = live.State
	}
	if live.State == m.State {
		m.Phase = live.Phase
	}
	return withHostView(m, live)
}

// withHostView adds the values that only the host has: progress, stalls, options of the copy.
func withHostView(m, host api.Migration) api.Migration {
	m.BytesDone, m.BytesTotal, m.RateBytesPerSecond = host.BytesDone, host.BytesTotal, host.RateBytesPerSecond
	m.OverlayBytes = host.OverlayBytes
	m.StallMS, m.ExposedSeconds, m.OverlayShared = host.StallMS, host.ExposedSeconds, host.OverlayShared
	m.SetCopyOptions(host.CopyOptions())
	m.Pacing = host.Pacing
	m.ExternalCopy, m.DeleteSource, m.Composite = host.ExternalCopy, host.DeleteSource, host.Composite
	m.Remark = cmp.Or(m.Remark, host.Remark)
	if m.Error == nil {
		m.Error = host.Error
	}
	if !m.State.Final() {
		m.StoppedAt = host.StoppedAt
		m.GuestPaused, m.GuestNotResumed, m.GuestThrottled, m.ChainProblem = host.GuestPaused, host.GuestNotResumed, host.GuestThrottled, host.ChainProblem
	}
	return m
}

// watchMigration streams the state of a migration, now and at every change, until it ends. The
// first line is the present state, so a disconnected client can ask again.
func (s *Server) watchMigration(w http.ResponseWriter, r *http.Request) error {
	id, viewer := httpjson.Reference(r), viewerOf(r)
	return s.stream(w, r, func(ctx context.Context) (api.Event, bool, error) {
		m, err := s.migration(ctx, id, viewer)
		if err != nil {
			return api.Event{}, false, err
		}
		return api.Event{What: "migration", Object: m.ID, To: string(m.State), Migration: &m}, m.State.Final(), nil
	})
}
