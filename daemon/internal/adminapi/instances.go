// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

func (s *Server) adoptInstance(w http.ResponseWriter, r *http.Request) error {
	in, err := routes.AdoptInstance.Decode(r)
	if err != nil {
		return err
	}
	if (in.Domain == "") != in.All {
		return api.Errorf(api.CodeInvalidArgument, "say which: domain, or all")
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	if _, err := s.Uplink.Host(r.Context()); err != nil {
		return err
	}
	if in.All {
		instances, already, err := s.Adopter.AdoptAll(r.Context(), id, in.Type)
		if err != nil {
			return err
		}
		return adopted(w, httpjson.Noun{Name: "instances", Value: instances}, already)
	}
	inst, before, err := s.Adopter.Adopt(r.Context(), id, in.Domain, in.Type)
	if err != nil {
		return err
	}
	var already []string
	if before {
		already = []string{inst.Name}
	}
	return adopted(w, httpjson.Noun{Name: routes.AdoptInstance.Noun, Value: inst}, already)
}

// adopted answers with what is adopted now, and the names of what was before.
func adopted(w http.ResponseWriter, what httpjson.Noun, already []string) error {
	if len(already) == 0 {
		return httpjson.WriteAll(w, http.StatusCreated, what)
	}
	return httpjson.WriteAll(w, http.StatusOK, what, httpjson.Noun{Name: "already_adopted", Value: already})
}

func (s *Server) forgetInstance(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Query().Has("with_definition") {
		return s.proxied(w, r) // of an instance that no host has there is nothing here
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	// A repeated request finds nothing here, and is known by its key below.
	ref := r.PathValue("instance")
	inst, lookErr := s.Registry.Instance(r.Context(), ref)
	if lookErr != nil {
		inst = api.Instance{ID: ref}
	}
	if err := s.Registry.ForgetInstance(r.Context(), id, ref); err != nil {
		return err
	}
	s.Uplink.Forgotten(r.Context(), inst.ID) // what fails here is done by a report
	return routes.ForgetInstance.Write(w, http.StatusOK, inst)
}
