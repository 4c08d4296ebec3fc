// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
)

// guarded are the routes with what holds for all of them: the bounds of their callers,
// and what a host is not told.
func (s *Server) guarded(routes []httpjson.Route) []httpjson.Route {
	for i, route := range routes {
		routes[i].Handler = func(w http.ResponseWriter, r *http.Request) error {
			if s.bounded(r) {
				leave, err := s.limits.enter(r.Context(), callerOf(r), lasts(route, r))
				if err != nil {
					return err
				}
				defer leave()
			}
			return withoutCandidates(r, route.Handler(w, r))
		}
	}
	return routes
}

// bounded reports whether a caller has bounds: all but the administrators of this machine.
func (s *Server) bounded(r *http.Request) bool {
	if _, ok := mtls.IdentityOf(r.Context()); ok {
		return true
	}
	return s.Authorize(r, httpjson.Route{Access: httpjson.Local}) != nil
}
