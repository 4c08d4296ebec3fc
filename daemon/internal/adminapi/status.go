// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	st := api.Status{
		Program: "volferryd", Version: s.Version, Host: s.HostName, HostID: s.HostID, Since: s.Since,
		Parts: []api.Check{s.libvirtPart(), s.registryPart()},
	}
	s.count(r.Context(), &st)
	for _, p := range st.Parts {
		st.Degraded = st.Degraded || p.Status != "ok"
	}
	return httpjson.Write(w, http.StatusOK, "status", st)
}

func (s *Server) libvirtPart() api.Check {
	if s.HV.Up() {
		return api.Check{Name: "libvirt", Status: "ok", Message: "connected"}
	}
	return api.Check{
		Name: "libvirt", Status: "fail", Message: "libvirt does not answer; what needs it waits",
		Advice: "systemctl status libvirtd",
	}
}

func (s *Server) registryPart() api.Check {
	if err := s.Uplink.Err(); err != nil {
		return api.Check{
			Name: "registry", Status: "fail", Message: err.Error(), Advice: "start volferry-registry",
		}
	}
	return api.Check{Name: "registry", Status: "ok", Message: "connected"}
}

// count fills in what can be counted now; a part that is away is told of by
// Parts.
func (s *Server) count(ctx context.Context, st *api.Status) {
	if vols, err := s.Registry.Volumes(ctx); err == nil {
		st.Volumes = len(vols)
	}
	if insts, err := s.Registry.Instances(ctx); err == nil {
		st.Instances = len(insts)
	}
	open, err := s.Migrations.List(ctx, false)
	if err != nil {
		st.Parts = append(st.Parts, api.Check{Name: "journal", Status: "fail", Message: err.Error()})
		return
	}
	st.Parts = append(st.Parts, api.Check{Name: "journal", Status: "ok", Message: "writable"})
	for i := range open {
		st.MigrationsActive++
		if open[i].State == api.MigrationNeedsOperator {
			st.NeedsOperator++
		}
	}
}

func (s *Server) doctor(w http.ResponseWriter, r *http.Request) error {
	return httpjson.Write(w, http.StatusOK, "checks", s.Doctor(r.Context()))
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	return httpjson.Write(w, http.StatusOK, "version", map[string]string{"program": "volferryd", "version": s.Version})
}

// openAPI answers with this API as an OpenAPI document.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	return httpjson.WriteOpenAPI(w, "Volferry daemon", s.Version, s.Routes())
}
