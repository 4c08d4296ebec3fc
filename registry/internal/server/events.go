// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// events answers with the audit trail after since, or follows it from there
// until the reader goes away.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	since, err := sequence(query)
	if err != nil {
		return err
	}
	follow, err := boolean(query, "follow")
	if err != nil {
		return err
	}
	if follow {
		return s.follow(w, r, since)
	}
	events, err := s.Store.Events(r.Context(), since)
	if err != nil {
		return err
	}
	return routes.ListEvents.Write(w, http.StatusOK, events)
}

func (s *Server) follow(w http.ResponseWriter, r *http.Request, since int64) error {
	stream, err := httpjson.NewStream(w)
	if err != nil {
		return err
	}
	for {
		// Before the look, so that no commit falls between look and wait.
		commit := s.Store.NextCommit()
		events, err := s.Store.Events(r.Context(), since)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := stream.Send(e); err != nil {
				return err
			}
			since = e.Seq
		}
		if len(events) > 0 {
			continue // there may be more than one look shows
		}
		select {
		case <-commit:
		case <-r.Context().Done():
			return nil
		}
	}
}
