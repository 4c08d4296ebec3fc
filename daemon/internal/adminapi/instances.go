// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

func (s *Server) adoptInstance(w http.ResponseWriter, r *http.Request) error {
	var in api.InstanceAdopt
	if err := httpjson.Decode(r, &in); err != nil {
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
		all, err := s.Adopter.AdoptAll(r.Context(), id)
		if err != nil {
			return err
		}
		return httpjson.Write(w, http.StatusCreated, "instances", all)
	}
	one, err := s.Adopter.Adopt(r.Context(), id, in.Domain)
	if err != nil {
		return err
	}
	return httpjson.Write(w, http.StatusCreated, "instance", one)
}

func (s *Server) forgetInstance(w http.ResponseWriter, r *http.Request) error {
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
	return httpjson.Write(w, http.StatusOK, "instance", inst)
}
