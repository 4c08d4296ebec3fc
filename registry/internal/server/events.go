// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

type eventAPI struct {
	trail *store.Trail
}

// list answers with the events after the query parameter since, or follows the audit trail until
// the client disconnects.
func (s *eventAPI) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	since, err := sequence(query)
	if err != nil {
		return err
	}
	follow, err := boolean(query, "follow")
	if err != nil {
		return err
	}
	last, err := lastOf(query)
	if err != nil {
		return err
	}
	if follow && last > 0 {
		return api.Errorf(api.CodeInvalidArgument, "the query parameters last and follow do not go together")
	}
	if follow {
		return s.follow(w, r, since)
	}
	if last > 0 {
		events, err := s.trail.LastEvents(r.Context(), since, last)
		if err != nil {
			return err
		}
		return routes.ListEvents.Write(w, http.StatusOK, events)
	}
	events, err := s.trail.Events(r.Context(), since)
	if err != nil {
		return err
	}
	return routes.ListEvents.Write(w, http.StatusOK, events)
}

func lastOf(query url.Values) (int, error) {
	if !query.Has("last") {
		return 0, nil
	}
	n, err := strconv.Atoi(query.Get("last"))
	if err != nil || n < 1 || n > ledger.MaxEvents {
		return 0, api.Errorf(api.CodeInvalidArgument, "the query parameter last is a number of events from 1 to %d, not %.40q", ledger.MaxEvents, query.Get("last"))
	}
	return n, nil
}

func (s *eventAPI) follow(w http.ResponseWriter, r *http.Request, since int64) error {
	stream, err := httpjson.NewStream(w)
	if err != nil {
		return err
	}
	for {
		// Before the read, to miss no commit.
		commit := s.trail.NextCommit()
		events, err := s.trail.Events(r.Context(), since)
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
			continue // one read may not return all events
		}
		select {
		case <-commit:
		case <-r.Context().Done():
			return nil
		}
	}
}
