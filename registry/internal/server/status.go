// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/registry/internal/store"
)

// Program is what this program calls itself.
const Program = "volferry-registry"

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	status, err := s.currentStatus(r.Context())
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusOK, "status", status)
}

func (s *Server) currentStatus(ctx context.Context) (api.Status, error) {
	counts, err := s.Store.Counts(ctx)
	if err != nil {
		return api.Status{}, err
	}
	return api.Status{
		Program:          Program,
		Version:          s.Version,
		Since:            s.since,
		Parts:            []api.Check{hostsCheck(counts)},
		Instances:        counts.Instances,
		Volumes:          counts.Volumes,
		MigrationsActive: counts.Locks,
		NeedsOperator:    counts.NeedsOperator,
	}, nil
}

func hostsCheck(c store.Counts) api.Check {
	check := api.Check{Name: "hosts", Status: "ok", Message: fmt.Sprintf("%d up, %d suspect", c.Hosts[api.HostUp], c.Hosts[api.HostSuspect])}
	if c.Hosts[api.HostSuspect] > 0 {
		check.Status = "warn"
		check.Advice = "look at volferryd on the suspect hosts; what they hold stays locked"
	}
	return check
}

// openAPI answers with this API as an OpenAPI document.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	return httpjson.WriteOpenAPI(w, "Volferry registry", s.Version, s.Routes())
}
