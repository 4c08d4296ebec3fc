// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/registry/internal/store"
)

func (s *Server) attachments(w http.ResponseWriter, r *http.Request) error {
	query, err := httpjson.Query(r, "volume", "instance")
	if err != nil {
		return err
	}
	found, err := s.Store.Attachments(r.Context(), query.Get("volume"), query.Get("instance"), store.Viewer{})
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusOK, "attachments", found)
}

func (s *Server) migrations(w http.ResponseWriter, r *http.Request) error {
	query, err := httpjson.Query(r, "volume", "all")
	if err != nil {
		return err
	}
	all, err := boolean(query, "all")
	if err != nil {
		return err
	}
	found, err := s.Store.Migrations(r.Context(), query.Get("volume"), all, store.Viewer{})
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusOK, "migrations", found)
}

// boolean returns a query parameter that is 1, 0, true or false, and false if
// it is missing.
func boolean(query url.Values, name string) (bool, error) {
	if !query.Has(name) {
		return false, nil
	}
	v, err := strconv.ParseBool(query.Get(name))
	if err != nil {
		return false, api.Errorf(api.CodeInvalidArgument, "the query parameter %s is 1 or 0, not %q", name, query.Get(name))
	}
	return v, nil
}
