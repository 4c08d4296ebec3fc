// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func (s *statusAPI) show(r *http.Request, _ url.Values) (api.Status, error) {
	return s.current(r.Context())
}

func (s *statusAPI) current(ctx context.Context) (api.Status, error) {
	counts, err := s.Store.Counts(ctx)
	if err != nil {
		return api.Status{}, err
	}
	versions, err := s.versionsCheck(ctx)
	if err != nil {
		return api.Status{}, err
	}
	open, err := s.views.open(ctx)
	if err != nil {
		return api.Status{}, err
	}
	elsewhere, err := s.Store.Instances.RunningElsewhere(ctx)
	if err != nil {
		return api.Status{}, err
	}
	hosts, err := s.Store.Hosts.All(ctx)
	if err != nil {
		return api.Status{}, err
	}
	database := s.databaseCheck()
	parts := []api.Check{database, hostsCheck(counts, silentHosts(hosts, time.Now()), s.Store.Marks.Doubted()), locksCheck(counts), api.CheckMoves(open), s.auditCheck(), sharedCheck(s.Store.Pools.Shared()), versions}
	if chains := api.CheckChains(api.ChainProblems(open)); chains.Status != checkOK {
		parts = append(parts, chains)
	}
	if len(elsewhere) > 0 {
		parts = append(parts, elsewhereCheck(elsewhere))
	}
	parts = append(parts, s.duplicateChecks(ctx)...)
	if s.TLSTrouble != nil {
		parts = append(parts, tlsCheck(s.TLSTrouble()))
	}
	parts = append(parts, s.certificateChecks()...)
	if s.Scraped != nil {
		parts = append(parts, s.Scraped()...)
	}
	return api.Status{
		Program:          Program,
		Version:          s.Version,
		Since:            s.since,
		Degraded:         database.Status == checkFail,
		Parts:            parts,
		Instances:        counts.Instances,
		Volumes:          counts.Volumes,
		MigrationsActive: counts.Locks,
		NeedsOperator:    counts.NeedsOperator + len(elsewhere),
	}, nil
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	return routes.ShowRegistryVersion.Write(w, http.StatusOK, s.Version)
}
