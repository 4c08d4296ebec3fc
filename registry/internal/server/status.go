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
	if _, err := httpjson.Query(r); err != nil {
		return err
	}
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
	database := s.databaseCheck()
	parts := []api.Check{database, hostsCheck(counts), locksCheck(counts)}
	if s.TLSTrouble != nil {
		parts = append(parts, tlsCheck(s.TLSTrouble()))
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
		NeedsOperator:    counts.NeedsOperator,
	}, nil
}

// The statuses of a check.
const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "fail"
)

// databaseCheck says whether the registry takes changes.
func (s *Server) databaseCheck() api.Check {
	reason, readOnly := s.Store.ReadOnly()
	if !readOnly {
		return api.Check{Name: "database", Status: checkOK, Message: "takes changes"}
	}
	return api.Check{
		Name: "database", Status: checkFail, Message: "read-only: " + reason,
		Advice: "no volume is attached, detached or moved until you have compared the registry with the hosts and run " + Program + " accept-restore",
	}
}

func hostsCheck(c store.Counts) api.Check {
	up, suspect, fenced := c.Hosts[api.HostUp], c.Hosts[api.HostSuspect], c.Hosts[api.HostFenced]
	check := api.Check{Name: "hosts", Status: checkOK, Message: fmt.Sprintf("%d up, %d suspect, %d fenced", up, suspect, fenced)}
	if suspect > 0 {
		check.Status = checkWarn
		check.Advice = "look at volferryd on the suspect hosts; what they hold stays held"
	}
	return check
}

func locksCheck(c store.Counts) api.Check {
	check := api.Check{Name: "locks", Status: checkOK, Message: fmt.Sprintf("%d volumes are locked by migrations", c.Locks)}
	if c.NeedsOperator > 0 {
		check.Status = checkWarn
		check.Advice = fmt.Sprintf("%d of them need an operator: volferryctl migration list", c.NeedsOperator)
	}
	return check
}

// tlsCheck tells of files that are not in use as they are.
func tlsCheck(trouble error) api.Check {
	if trouble == nil {
		return api.Check{Name: "tls", Status: checkOK, Message: "certificates and deny-list are in use as they are"}
	}
	return api.Check{
		Name: "tls", Status: checkFail, Message: trouble.Error(),
		Advice: "the last good files stay in use: what was denied or replaced since is not; put the files right",
	}
}

// openAPI answers with this API as an OpenAPI document.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	return httpjson.WriteOpenAPI(w, "Volferry registry", s.Version, s.Routes())
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	return httpjson.Write(w, http.StatusOK, "version", s.Version)
}
