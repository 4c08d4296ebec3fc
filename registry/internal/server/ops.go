// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

// opOver has the final states of an op, which are the results in a stream's last line.
var opOver = []string{api.OpDone, api.OpUndone, api.OpNeedsOperator}

type opAPI struct {
	targets *targets
	relay   *relay.Relay
	views   *views
	streams *streams
}

func (s *opAPI) watch(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("op")
	host, err := s.targets.hostOfOp(r.Context(), id)
	if err != nil {
		return err
	}
	var (
		o     api.Op
		asked time.Time
		state string // the migration's state when the host was last queried
	)
	return s.streams.send(w, r, func(ctx context.Context) (api.Event, bool, error) {
		e, over, err := s.event(ctx, o)
		if err != nil {
			return e, over, err
		}
		// Progress is reported. Only the rest needs a query of the host.
		if time.Since(asked) < lookEvery && e.To == state {
			return e, over, nil
		}
		if o, err = s.op(r, host, id); err != nil {
			return e, false, err
		}
		e, over, err = s.event(ctx, o)
		asked, state = time.Now(), e.To
		return e, over, err
	})
}

func (s *opAPI) op(r *http.Request, host api.Host, id string) (o api.Op, err error) {
	if o, err = askHost(r.Context(), s.relay, whoIs(r), host, routes.ShowOp, id); err == nil && o.ID == "" {
		err = api.Errorf(api.CodeInternal, "host %s gave no operation %s", host.Name, id)
	}
	return o, err
}

func (s *opAPI) event(ctx context.Context, o api.Op) (api.Event, bool, error) {
	e := api.Event{What: o.Kind, OpID: o.ID, To: o.State}
	over := slices.Contains(opOver, o.State)
	if over {
		e.Result = o.State
	}
	if o.MigrationID == "" {
		return e, over, nil
	}
	m, err := s.views.migration(ctx, o.MigrationID, store.Viewer{})
	if api.CodeOf(err) == api.CodeNotFound {
		return e, over, nil // its host has not registered it, or never will
	}
	if err != nil {
		return e, false, err
	}
	e.What, e.Object, e.To, e.Migration = "migration", m.ID, string(m.State), &m
	return e, over, nil
}
