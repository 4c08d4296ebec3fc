// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// mostOpWaits is how many callers may wait for ops at once. The limit exists because a waiting
// task keeps another task from running (uplink).
const mostOpWaits = 12

type opAPI struct {
	runner     *op.Runner
	migrations *migrate.Manager
	waits      *atomic.Int64
}

func (s *opAPI) show(r *http.Request, _ routes.None) (api.Op, error) {
	wait, err := waitOf(r)
	if err != nil {
		return api.Op{}, err
	}
	id := r.PathValue("op")
	o, err := s.requested(r.Context(), id)
	if err != nil || wait == 0 || op.State(o.State).Settled() {
		return o, err
	}
	if s.waits.Add(1) <= mostOpWaits {
		s.awaitEnd(r.Context(), wait, o)
	}
	s.waits.Add(-1)
	return s.requested(r.Context(), id)
}

func (s *opAPI) awaitEnd(ctx context.Context, wait time.Duration, o api.Op) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if o.MigrationID != "" {
		_, _ = s.migrations.Await(ctx, o.ID)
	} else {
		_, _ = s.runner.Wait(ctx, o.ID)
	}
}

// requested returns the state of the request that began with this op. Only a request for a
// migration may have several ops.
func (s *opAPI) requested(ctx context.Context, opID string) (api.Op, error) {
	st, err := s.runner.Status(ctx, opID)
	if err != nil {
		return api.Op{}, api.NotFoundHere("operation", opID)
	}
	if migrate.Owns(st.Op.Kind) {
		out, err := s.migrations.Request(ctx, opID)
		out.Next = nextCommands(&st, &out)
		return out, err
	}
	out := render(&st)
	out.Live = plans.LiveOutcome(&st)
	return out, nil
}

func render(st *op.Status) (out api.Op) {
	if migrate.Owns(st.Op.Kind) {
		out = migrate.RenderOp(st)
	} else {
		out = request.Render(st, st.State, request.APIError(st.Failure))
	}
	out.Next = nextCommands(st, &out)
	return out
}

func (s *opAPI) list(*http.Request, routes.None) ([]api.Op, error) { return OpenOps(s.runner), nil }

// OpenOps returns the unfinished ops of a runner, of every kind, oldest first.
func OpenOps(runner *op.Runner) []api.Op {
	open := []api.Op{}
	for _, st := range runner.Active() {
		if !st.State.Final() {
			open = append(open, render(&st))
		}
	}
	slices.SortFunc(open, func(a, b api.Op) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	return open
}

// watch streams the progress of a request. The first line has the present state, the last line the
// result: done, undone or needs_operator.
func (s *opAPI) watch(w http.ResponseWriter, r *http.Request) error {
	o, err := s.requested(r.Context(), r.PathValue("op"))
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
	return s.migrations.Watch(r.Context(), o.MigrationID, func(e api.Event) bool {
		now, err := s.migrations.Request(r.Context(), o.ID)
		if err != nil {
			return false
		}
		e.OpID = o.ID
		over := op.State(now.State).Settled()
		if over {
			e.Result = now.State
		}
		return stream.Send(e) == nil && !over
	})
}

func (s *opAPI) watchOther(ctx context.Context, stream *httpjson.Stream, o api.Op) error {
	st, err := s.runner.Wait(ctx, o.ID)
	if err != nil {
		return err
	}
	return stream.Send(api.Event{Seq: 1, At: time.Now().UTC(), What: o.Kind, OpID: o.ID, To: string(st.State), Result: string(st.State)})
}
