// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/op"
	"github.com/volferry/volferry/internal/routes"
)

func (s *Server) showOp(r *http.Request, _ routes.None) (api.Op, error) {
	return s.Migrations.Request(r.Context(), r.PathValue("op"))
}

// watchOp streams what becomes of a request. The last line has its result:
// done, undone or needs_operator. A reader that was cut off asks again: the
// first line is always how things are now, so that it misses nothing.
func (s *Server) watchOp(w http.ResponseWriter, r *http.Request) error {
	if _, err := httpjson.Query(r, "since"); err != nil {
		return err
	}
	o, err := s.Migrations.Request(r.Context(), r.PathValue("op"))
	if err != nil {
		return err
	}
	stream, err := httpjson.NewStream(w)
	if err != nil {
		return err
	}
	if o.MigrationID == "" {
		return s.watchOther(r.Context(), stream, o)
	}
	return s.Migrations.Watch(r.Context(), o.MigrationID, func(e api.Event) bool {
		now, err := s.Migrations.Request(r.Context(), o.ID)
		if err != nil {
			return false
		}
		e.OpID = o.ID
		state := op.State(now.State)
		over := state.Final() || state == op.StateNeedsOperator
		if over {
			e.Result = now.State
		}
		return stream.Send(e) == nil && !over
	})
}

// watchOther tells the end of an op that is none of a migration: they are short.
func (s *Server) watchOther(ctx context.Context, stream *httpjson.Stream, o api.Op) error {
	st, err := s.Runner.Wait(ctx, o.ID)
	if err != nil {
		return err
	}
	return stream.Send(api.Event{Seq: 1, At: time.Now().UTC(), What: o.Kind, OpID: o.ID, To: string(st.State), Result: string(st.State)})
}
