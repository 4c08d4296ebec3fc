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

// hostParameter is the query parameter that names the host if nothing else identifies it. It is
// not passed on.
const hostParameter = "host"

// target is the host that must answer a request, and the object that the path names.
type target struct {
	host api.Host
	// id replaces the object's name in the call of the host: the name may mean another object
	// there later. It is "" if the path names no object of the registry.
	id string
}

type finder[In any] func(ctx context.Context, r *http.Request, in *In) (target, error)

type forwarder struct {
	relay *relay.Relay
	tasks *workflow.Tasks
}

// relayed returns a route that passes requests to the same method and path of a host's API, with
// ids instead of names. It decodes the body as strictly as the host.
func relayed[In, Out any](f *forwarder, route routes.Route[In, Out], find finder[In]) httpjson.Route {
	return route.ServedByRegistry(relaying(f, find))
}

func relaying[In any](f *forwarder, find finder[In]) handler {
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
		return f.pass(w, r, asAsked(r, query, body), key, resolving(r, query, in, find))
	}
}

// asAsked returns a request as its caller made it, with the part of its query that is passed on.
func asAsked(r *http.Request, query string, body []byte) workflow.TaskRequest {
	return workflow.TaskRequest{Method: r.Method, Path: r.URL.EscapedPath() + query, Body: body}
}

type resolve func(ctx context.Context) (relay.Request, error)

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

func pathOf(r *http.Request, id string) string {
	before, rest, wild := strings.Cut(r.Pattern, "{")
	_, after, _ := strings.Cut(rest, "}")
	if !wild || id == "" {
		return r.URL.EscapedPath()
	}
	_, before, _ = strings.Cut(before, " ")
	return before + url.PathEscape(id) + after
}

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

// pass passes a request to a host and answers with the host's answer. A request with a known key
// goes to the same host in the same form as before.
func (s *forwarder) pass(w http.ResponseWriter, r *http.Request, asked workflow.TaskRequest, key string, find resolve) error {
	status, body, err := s.ask(r, asked, key, find)
	if err != nil {
		return err
	}
	handOn(w, status, body)
	return nil
}

func handOn(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error means that the caller has disconnected. Do not change body: it may also be the
	// answer to other callers.
	_, _ = w.Write(bytes.TrimRight(body, "\n"))
	_, _ = io.WriteString(w, "\n")
}

func (s *forwarder) ask(r *http.Request, asked workflow.TaskRequest, key string, find resolve) (status int, body []byte, err error) {
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
	return s.relay.Do(r.Context(), req)
}

// askedBefore returns the earlier call with this key, or a call without a path if there is none.
func (s *forwarder) askedBefore(ctx context.Context, key string) (relay.Request, error) {
	if key == "" {
		return relay.Request{}, nil
	}
	task, _, err := s.tasks.Get(ctx, key)
	switch {
	case api.CodeOf(err) == api.CodeNotFound || err == nil && task.State == api.TaskWithdrawn:
		return relay.Request{}, nil
	case err != nil:
		return relay.Request{}, err
	}
	return relay.Request{Method: task.Method, Path: task.Path, Body: task.Body, Needs: task.Needs}, nil
}
