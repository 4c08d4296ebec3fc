// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// atInstance begins an op on a volume at the body's instance. If no host has the instance, it
// passes the call on to the registry.
func atInstance[In any](s *Server, route routes.Route[In, api.Attachment], instance func(In) string, begin change[In, api.Attachment]) httpjson.Route {
	return route.ServedByDaemon(func(w http.ResponseWriter, r *http.Request) error {
		var in In
		r, err := decodeAndKeep(r, &in)
		if err != nil {
			return err
		}
		id, err := opID(r)
		if err != nil {
			return err
		}
		if at := instance(in); s.passing().onShelf(r.Context(), id, at) {
			return s.passing().passOn(w, r, "instance "+at+" is on no host")
		}
		att, err := begin(r.Context(), id, r.PathValue("volume"), in)
		if err != nil {
			return err
		}
		return begun(s.ops(), route, w, r, id, att)
	})
}

func (s *Server) deleteAttachment(w http.ResponseWriter, r *http.Request) error {
	force, err := forced(r)
	if err != nil {
		return err
	}
	id, err := opID(r)
	if err != nil {
		return err
	}
	if ref := r.PathValue("attachment"); s.passing().ofShelf(r.Context(), id, ref) {
		return s.passing().passOn(w, r, "attachment "+ref+" is of an instance that is on no host")
	}
	att, err := s.Attachments.BeginDelete(r.Context(), id, r.PathValue("attachment"), force)
	if err != nil {
		return err
	}
	return begun(s.ops(), routes.DeleteAttachment, w, r, id, att)
}
