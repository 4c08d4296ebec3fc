// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
)

// guarded adds the callers' limits to routes, and hides other hosts' ids from hosts.
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

// bounded reports whether the caller has limits. Only administrators of this machine have none.
func (s *Server) bounded(r *http.Request) bool {
	if _, ok := mtls.IdentityOf(r.Context()); ok {
		return true
	}
	return s.Authorize(r, httpjson.Route{Access: httpjson.Local}) != nil
}
