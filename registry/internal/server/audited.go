// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/store"
)

// audited has the routes with audited refusals, and their names in the audit trail. These routes
// take something away from a host that cannot be asked.
var audited = map[string]string{
	routes.FenceHost.String():        "host.fence",
	routes.ForgetHost.String():       "host.forget",
	routes.AbandonMigration.String(): "migration.abandon",
	routes.DeleteAttachment.String(): "attachment.delete",
}

var objects = map[string]string{
	"host.fence": "host/", "host.forget": "host/", "migration.abandon": "migration/", "attachment.delete": "attachment/",
}

type refusals struct {
	trail *store.Trail
	log   *slog.Logger
}

// audit audits a refusal made before the store is called; the store audits its own refusals.
func (s *refusals) audit(r *http.Request, refusal error) {
	what := audited[r.Pattern]
	if what == "" || what == "attachment.delete" && r.URL.Query().Get("force") == "" {
		return
	}
	// Audit it even if the caller has disconnected.
	ctx := context.WithoutCancel(r.Context())
	if err := s.trail.AuditRefusal(ctx, store.Call{Who: whoIs(r), Caller: callerOf(r)}, what, objects[what]+clip(httpjson.Reference(r)), refusal); err != nil {
		s.log.Warn("a refusal was not audited", "what", what, "who", whoIs(r), "refusal", refusal, "err", err)
	}
}

func clip(text string) string {
	const most = 80
	if len(text) > most {
		return text[:most]
	}
	return text
}

// drastic is like change, for the routes of audited.
func drastic[In, Out any](trail *refusals, route routes.Route[In, Out], do func(context.Context, store.Call, string, In) (Out, error)) httpjson.Route {
	return route.ServedByRegistry(func(w http.ResponseWriter, r *http.Request) error {
		call, in, err := readChange[In](r)
		if err != nil {
			trail.audit(r, err)
			return err
		}
		v, err := do(r.Context(), call, httpjson.Reference(r), in)
		if err != nil {
			return err
		}
		return route.Write(w, http.StatusOK, v)
	})
}
