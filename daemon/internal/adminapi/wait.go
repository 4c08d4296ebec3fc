// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// maxWait bounds how long a caller may wait for the end of an op.
const maxWait = 10 * time.Minute

// waitOf returns the query parameter wait, 0 if there is none.
func waitOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxWait {
		return 0, api.Errorf(api.CodeInvalidArgument, "wait is %q; it is a duration such as 30s, at most %s", text, maxWait)
	}
	return d, nil
}

// answerMove answers a call on a migration that began this op. A waiting caller gets the op's end,
// or its error; if the op does not end in time, the running op, like other callers.
func (s *Server) answerMove(w http.ResponseWriter, r *http.Request, wait time.Duration, opID string, m api.Migration) error {
	o, err := s.awaitOp(r.Context(), wait, opID)
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if op.State(o.State).Settled() && wait > 0 {
		if o.Error != nil {
			return o.Error
		}
		if m, err = s.Migrations.Get(r.Context(), m.ID); err != nil {
			return err
		}
		status = http.StatusOK
	}
	return httpjson.WriteAll(w, status, httpjson.Noun{Name: "op", Value: o}, httpjson.Noun{Name: routes.ShowMigration.Noun, Value: m})
}

func (s *Server) awaitOp(ctx context.Context, wait time.Duration, opID string) (api.Op, error) {
	if wait == 0 {
		return s.Migrations.Request(ctx, opID)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return s.Migrations.Await(ctx, opID)
}
