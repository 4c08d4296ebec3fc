// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// report takes a host's report. The path names the host by its id, which the
// body must repeat: a new host has no name here yet.
func (s *Server) report(w http.ResponseWriter, r *http.Request) error {
	call, in, err := readChange[api.HostReport](r)
	if err != nil {
		return err
	}
	if in.ID != r.PathValue("host") {
		return api.Errorf(api.CodeInvalidArgument, "the report of host %s was sent to the path of another host", in.ID)
	}
	host, err := s.Store.Report(r.Context(), call, in)
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusOK, "host", host)
}

func (s *Server) pool(w http.ResponseWriter, r *http.Request) error {
	query, err := httpjson.Query(r, "host")
	if err != nil {
		return err
	}
	pool, err := s.Store.Pool(r.Context(), r.PathValue("pool"), query.Get("host"))
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusOK, "pool", pool)
}
