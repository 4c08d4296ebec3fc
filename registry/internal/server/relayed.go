// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// hostParameter names the host where nothing else says which is meant. It is not
// passed on.
const hostParameter = "host"

// target is what a request means: the host that has to answer it, and the thing that
// its path names.
type target struct {
	host api.Host
	// id is the thing's, by which the host is asked for it. A name would have to be
	// looked up again there, and may be another thing's by then. It is "" where the
	// path names nothing that the registry knows.
	id string
}

// finder finds out what a request means. In place of names it puts ids into the body.
type finder[In any] func(ctx context.Context, r *http.Request, in *In) (target, error)

// relayed has a host answer the request, by the same method and path of its own
// API, with ids for names. The body is read here as strictly as there.
func relayed[In, Out any](s *Server, route routes.Route[In, Out], find finder[In]) httpjson.Route {
	return route.ServedByRegistry(relaying(s, find))
}

// relaying is the handler of relayed.
func relaying[In any](s *Server, find finder[In]) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		key, err := httpjson.IdempotencyKey(r)
		if err != nil {
			return err
		}
		in, body, err := readBody[In](r)
		if err != nil {
			return err
		}
		values := r.URL.Query()
		values.Del(hostParameter)
		query := ""
		if len(values) > 0 {
			query = "?" + values.Encode()
		}
		return s.pass(w, r, asAsked(r, query, body), key, resolving(r, query, in, find))
	}
}

// asAsked is a request as its caller made it, with the part of its query that is
// passed on.
func asAsked(r *http.Request, query string, body []byte) workflow.TaskRequest {
	return workflow.TaskRequest{Method: r.Method, Path: r.URL.EscapedPath() + query, Body: body}
}

// resolve makes the call of a host out of what was asked for.
type resolve func(ctx context.Context) (relay.Request, error)

// resolving makes the call of the same path, with what find finds.
func resolving[In any](r *http.Request, query string, in In, find finder[In]) resolve {
	return func(ctx context.Context) (req relay.Request, err error) {
		to, err := find(ctx, r, &in)
		if err != nil {
			return req, err
		}
		req = relay.Request{HostID: to.host.ID, HostName: to.host.Name, Method: r.Method, Path: pathOf(r, to.id) + query}
		if _, none := any(in).(routes.None); none {
			return req, nil
		}
		return req.With(in)
	}
}

// pathOf is the path of a request with an id in the place of the first thing that it
// names.
func pathOf(r *http.Request, id string) string {
	before, rest, wild := strings.Cut(r.Pattern, "{")
	_, after, _ := strings.Cut(rest, "}")
	if !wild || id == "" {
		return r.URL.EscapedPath()
	}
	_, before, _ = strings.Cut(before, " ")
	return before + url.PathEscape(id) + after
}

// readBody reads a body into In, and returns it as it is passed on.
func readBody[In any](r *http.Request) (in In, body []byte, err error) {
	if err := httpjson.Decode(r, &in); err != nil {
		return in, nil, err
	}
	if _, none := any(in).(routes.None); none {
		return in, nil, nil
	}
	if body, err = json.Marshal(in); err != nil {
		return in, nil, fmt.Errorf("encode body: %w", err)
	}
	return in, body, nil
}

// pass has a host do what is asked and hands its answer on. A request that is
// known by its key goes where it went before, as it went before, wherever things are
// and whatever they are called now.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, asked workflow.TaskRequest, key string, find resolve) error {
	status, body, err := s.ask(r, asked, key, find)
	if err != nil {
		return err
	}
	handOn(w, status, body)
	return nil
}

// handOn answers with what a host answered.
func handOn(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Whether the caller is still there is not ours to report. The body may be the answer
	// to others as well: it is not changed.
	_, _ = w.Write(bytes.TrimRight(body, "\n"))
	_, _ = io.WriteString(w, "\n")
}

func (s *Server) ask(r *http.Request, asked workflow.TaskRequest, key string, find resolve) (status int, body []byte, err error) {
	change := asked.Method != http.MethodGet
	req, err := s.askedBefore(r.Context(), key)
	if err != nil {
		return 0, nil, err
	}
	if req.Path == "" || !change {
		if req, err = find(r.Context()); err != nil {
			return 0, nil, err
		}
	}
	req.Asked, req.Change, req.Key, req.Who = asked, change, key, whoIs(r)
	if change && key == "" {
		req.Key = uuid.NewString()
	}
	return s.Relay.Do(r.Context(), req)
}

// askedBefore is the call that was made of a request with this key, without a path if
// there is none.
func (s *Server) askedBefore(ctx context.Context, key string) (relay.Request, error) {
	if key == "" {
		return relay.Request{}, nil
	}
	task, _, err := s.Store.Task(ctx, key)
	switch {
	case api.CodeOf(err) == api.CodeNotFound || err == nil && task.State == api.TaskWithdrawn:
		return relay.Request{}, nil
	case err != nil:
		return relay.Request{}, err
	}
	return relay.Request{Method: task.Method, Path: task.Path, Body: task.Body, Needs: task.Needs}, nil
}
