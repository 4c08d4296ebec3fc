// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

type migrationAPI struct {
	moves    *migrate.Manager
	registry Registry
	uplink   *uplink.Uplink
	passing  *passing
}

// answerMove answers a call on a migration that began this op. A caller who waits gets the op's
// end, or the op's error. If the op does not end in time, or the caller does not wait, the answer
// has the running op.
func (s *migrationAPI) answerMove(w http.ResponseWriter, r *http.Request, wait time.Duration, opID string, m api.Migration) error {
	o, err := s.awaitOp(r.Context(), wait, opID)
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if op.State(o.State).Settled() && wait > 0 {
		if o.Error != nil {
			return o.Error
		}
		if m, err = s.moves.Get(r.Context(), m.ID); err != nil {
			return err
		}
		status = http.StatusOK
	}
	return httpjson.WriteAll(w, status, httpjson.Noun{Name: "op", Value: o}, httpjson.Noun{Name: routes.ShowMigration.Noun, Value: m})
}

func (s *migrationAPI) awaitOp(ctx context.Context, wait time.Duration, opID string) (api.Op, error) {
	if wait == 0 {
		return s.moves.Request(ctx, opID)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return s.moves.Await(ctx, opID)
}
