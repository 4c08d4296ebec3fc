// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
	"github.com/volferry/volferry/registry/internal/workflow"
)

type migrationAPI struct {
	migrations *store.Migrations
	pauses     *workflow.Pauses
	hosts      *store.Hosts
	views      *views
	streams    *streams
	relay      *relay.Relay
}

func (s *migrationAPI) each(r *http.Request, after string, do ledger.Visit[api.Migration]) error {
	query := r.URL.Query()
	all, err := boolean(query, "all")
	if err != nil {
		return err
	}
	return s.migrations.Each(r.Context(), query.Get("volume"), all, viewerOf(r), after, do)
}

// show returns a migration. If it has ended, show also asks a connected host: only its journal has
// some final values, such as the guest's stalls.
func (s *migrationAPI) show(ctx context.Context, ref string, as store.Viewer) (api.Migration, error) {
	m, err := s.views.migration(ctx, ref, as)
	if err == nil && m.LedByRegistry() {
		if m.PauseSteps, err = s.pauses.Steps(ctx, m.ID); err != nil {
			return m, err
		}
		if stall := float64(api.StoodStill(m.PauseSteps).Milliseconds()); stall > 0 {
			m.StallMS.Switch = &stall
		}
	}
	if err != nil || as.HostID != "" || !m.State.Final() || m.LedByRegistry() {
		return m, err
	}
	host, err := s.hosts.Get(ctx, m.Host)
	if err != nil || host.Status == api.HostFenced || !s.relay.Present(host.ID) {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	end, err := askHost(ctx, s.relay, registryCaller, host, routes.ShowMigration, m.ID)
	if err != nil || end.ID != m.ID {
		return m, nil //nolint:nilerr // the host's answer is optional
	}
	return withHostView(m, validate.ReportedMigration(end)), nil
}

const (
	// endTimeout bounds the wait for the cost of an ended migration.
	endTimeout     = 2 * time.Second
	registryCaller = "the registry"
)

// watch streams the state of a migration, now and at every change, until it ends.
func (s *migrationAPI) watch(w http.ResponseWriter, r *http.Request) error {
	id, viewer := httpjson.Reference(r), viewerOf(r)
	return s.streams.send(w, r, func(ctx context.Context) (api.Event, bool, error) {
		m, err := s.show(ctx, id, viewer)
		if err != nil {
			return api.Event{}, false, err
		}
		return api.Event{What: "migration", Object: m.ID, To: string(m.State), Migration: &m}, m.State.Final(), nil
	})
}
