// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/registry/internal/relay"
)

// nothing is the body of a call that has none.
type nothing struct{}

// hostParameter names the host where nothing else says which is meant. It is not
// passed on.
const hostParameter = "host"

// finder finds the host that has to answer a request.
type finder[In any] func(ctx context.Context, r *http.Request, in In) (api.Host, error)

// relayed has a host answer the request, by the same method and path of its own
// API. The body is read here as strictly as there.
func relayed[In any](s *Server, find finder[In], query ...string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		values, err := httpjson.Query(r, query...)
		if err != nil {
			return err
		}
		key, err := httpjson.IdempotencyKey(r)
		if err != nil {
			return err
		}
		in, body, err := readBody[In](r)
		if err != nil {
			return err
		}
		values.Del(hostParameter)
		path := r.URL.EscapedPath()
		if len(values) > 0 {
			path += "?" + values.Encode()
		}
		return s.pass(w, r, relay.Request{Method: r.Method, Path: path, Body: body, Key: key, Change: r.Method != http.MethodGet},
			func(ctx context.Context) (api.Host, error) { return find(ctx, r, in) })
	}
}

// readBody reads a body into In, and returns it as it is passed on. A call
// without one may have an empty object.
func readBody[In any](r *http.Request) (in In, body []byte, err error) {
	if _, none := any(in).(nothing); none {
		if empty, err := isEmpty(r); empty || err != nil {
			return in, nil, err
		}
		return in, nil, httpjson.Decode(r, &in)
	}
	if err := httpjson.Decode(r, &in); err != nil {
		return in, nil, err
	}
	if body, err = json.Marshal(in); err != nil {
		return in, nil, fmt.Errorf("encode body: %w", err)
	}
	return in, body, nil
}

// isEmpty says whether a request has no body, and leaves what it has.
func isEmpty(r *http.Request) (bool, error) {
	body := bufio.NewReader(r.Body)
	_, err := body.Peek(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{body, r.Body}
	return false, err
}

// pass has a host do what is asked and hands its answer on. A request that is
// known by its key goes where it went before, wherever things are now.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, req relay.Request, find func(context.Context) (api.Host, error)) error {
	status, body, err := s.ask(r, req, find)
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
	// Whether the caller is still there is not ours to report.
	_, _ = w.Write(append(bytes.TrimRight(body, "\n"), '\n'))
}

func (s *Server) ask(r *http.Request, req relay.Request, find func(context.Context) (api.Host, error)) (status int, body []byte, err error) {
	known := false
	if req.Change && req.Key != "" {
		task, _, err := s.Store.Task(r.Context(), req.Key)
		if err != nil && api.CodeOf(err) != api.CodeNotFound {
			return 0, nil, err
		}
		known = err == nil && task.State != api.TaskWithdrawn
	}
	if req.Change && req.Key == "" {
		req.Key = uuid.NewString()
	}
	if !known {
		host, err := find(r.Context())
		if err != nil {
			return 0, nil, err
		}
		req.HostID, req.HostName = host.ID, host.Name
	}
	req.Who = whoIs(r)
	return s.Relay.Do(r.Context(), req)
}
