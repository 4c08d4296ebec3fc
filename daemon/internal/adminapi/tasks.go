// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
)

// Perform makes a task's call as if its caller had made it at this socket; the registry has
// checked the caller. It refuses streams, and calls that the registry answers. For a task that
// comes too late it only reports whether the call was begun.
func (s *Server) Perform(ctx context.Context, t api.Task) api.TaskAnswer {
	var a recording
	if err := s.refuseLate(ctx, t); err != nil {
		httpjson.WriteError(&a, err)
		return a.answer()
	}
	r, err := http.NewRequestWithContext(asTask(ctx), t.Method, t.Path, bytes.NewReader(t.Body))
	if err != nil {
		httpjson.WriteError(&a, api.Errorf(api.CodeInvalidArgument, "task %.64s is no call of this API: %v", t.ID, err))
		return a.answer()
	}
	r.Header.Set(api.IdempotencyKeyHeader, t.ID)
	if s.Callers != nil {
		s.Callers.Note(t.ID, t.Who)
	}
	protocol.AnnounceFor(r.Header, t.Protocol)
	protocol.Require(r.Header, t.Needs)
	s.tasks().ServeHTTP(&a, r)
	return a.answer()
}

func (s *Server) refuseLate(ctx context.Context, t api.Task) error {
	if !t.Late {
		return nil
	}
	known, err := request.Known(ctx, s.Runner, t.ID)
	switch {
	case err != nil:
		return api.Errorf(api.CodeJournalUnavailable, "it is not known whether this was begun: %v", err)
	case !known:
		return api.Errorf(api.CodeHypervisorUnavailable,
			"host %s was away when this was asked of it, at %s, and has no record of it; it is too old to be begun now: nothing was done, so ask again, as a new request",
			s.HostName, t.CreatedAt.UTC().Format(time.RFC3339)).With("expired", true)
	}
	return nil
}

func (s *Server) tasks() http.Handler {
	s.tasksOnce.Do(func() {
		parts := parts()
		s.tasksHandler = s.Handler(func(_ *http.Request, route httpjson.Route) error {
			if parts[route.Method+" "+route.Path] == routes.Answers {
				return nil
			}
			return api.Errorf(api.CodePermissionDenied, "%s %s cannot be asked of a host by the registry", route.Method, route.Path)
		})
	})
	return s.tasksHandler
}

type recording struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *recording) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader implements http.ResponseWriter.
func (a *recording) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *recording) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func (a *recording) answer() api.TaskAnswer {
	return api.TaskAnswer{Status: a.status, Body: json.RawMessage(bytes.TrimSpace(a.body.Bytes()))}
}
