// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

type handler = httpjson.Handler

// answer answers with what look makes of the body.
func answer[In, Out any](route routes.Route[In, Out], look func(*http.Request, In) (Out, error)) httpjson.Route {
	return route.ServedByDaemon(func(w http.ResponseWriter, r *http.Request) error {
		in, err := route.Decode(r)
		if err != nil {
			return err
		}
		out, err := look(r, in)
		if err != nil {
			return err
		}
		return route.Write(w, http.StatusOK, out)
	})
}

// change does under an op id what the body asks of the thing that the path names.
type change[In, Out any] = func(ctx context.Context, opID, ref string, in In) (Out, error)

// do answers when the change is done.
func do[In, Out any](route routes.Route[In, Out], status int, c change[In, Out]) httpjson.Route {
	return changes(route, c, func(w http.ResponseWriter, _ *http.Request, _ string, out Out) error {
		return route.Write(w, status, out)
	})
}

// begin answers when the change has begun, with its op.
func begin[In, Out any](s *Server, route routes.Route[In, Out], c change[In, Out]) httpjson.Route {
	return changes(route, c, func(w http.ResponseWriter, r *http.Request, opID string, out Out) error {
		return begun(s, route, w, r, opID, out)
	})
}

func changes[In, Out any](route routes.Route[In, Out], c change[In, Out], write func(http.ResponseWriter, *http.Request, string, Out) error) httpjson.Route {
	return route.ServedByDaemon(func(w http.ResponseWriter, r *http.Request) error {
		in, err := route.Decode(r)
		if err != nil {
			return err
		}
		id, err := opID(r)
		if err != nil {
			return err
		}
		out, err := c(r.Context(), id, httpjson.Reference(r), in)
		if err != nil {
			return err
		}
		return write(w, r, id, out)
	})
}

// opID returns the id of the op that a request asks for. It is the caller's key if there is
// one, so that a repeated request finds the op of the first; otherwise it is a new id.
func opID(r *http.Request) (string, error) {
	key, err := httpjson.IdempotencyKey(r)
	if err != nil {
		return "", err
	}
	if key == "" {
		return uuid.NewString(), nil
	}
	return key, nil
}

// begun answers with the op that does what was asked for, what it does it to, and what else there
// is to say.
func begun[In, Out any](s *Server, route routes.Route[In, Out], w http.ResponseWriter, r *http.Request, opID string, out Out, more ...httpjson.Noun) error {
	o, err := s.requested(r.Context(), opID)
	if err != nil {
		return err
	}
	nouns := append([]httpjson.Noun{{Name: "op", Value: o}, {Name: route.Noun, Value: out}}, more...)
	return httpjson.WriteAll(w, http.StatusAccepted, nouns...)
}
