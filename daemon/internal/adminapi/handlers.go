// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

type handler = httpjson.Handler

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

// change makes a change of the object ref; in is the request's body, opID the id of the change.
type change[In, Out any] = func(ctx context.Context, opID, ref string, in In) (Out, error)

// do serves a change that is complete when it is answered.
func do[In, Out any](route routes.Route[In, Out], status int, c change[In, Out]) httpjson.Route {
	return changes(route, c, func(w http.ResponseWriter, _ *http.Request, _ string, out Out) error {
		return route.Write(w, status, out)
	})
}

// begin serves a change that continues after the answer. The answer has the change's op.
func begin[In, Out any](ops *opAPI, route routes.Route[In, Out], c change[In, Out]) httpjson.Route {
	return changes(route, c, func(w http.ResponseWriter, r *http.Request, opID string, out Out) error {
		return begun(ops, route, w, r, opID, out)
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

// opID returns a request's op id: the caller's idempotency key, so that a repeated request finds
// its op, or a new id if there is no key.
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

func begun[In, Out any](ops *opAPI, route routes.Route[In, Out], w http.ResponseWriter, r *http.Request, opID string, out Out, more ...httpjson.Noun) error {
	o, err := ops.requested(r.Context(), opID)
	if err != nil {
		return err
	}
	nouns := append([]httpjson.Noun{{Name: "op", Value: o}, {Name: route.Noun, Value: out}}, more...)
	return httpjson.WriteAll(w, http.StatusAccepted, nouns...)
}

func forced(r *http.Request) (bool, error) {
	q := r.URL.Query()
	if !q.Has("force") {
		return false, nil
	}
	force, err := strconv.ParseBool(q.Get("force"))
	if err != nil {
		return false, api.Errorf(api.CodeInvalidArgument, "the query parameter force is 1 or 0, not %.20q", q.Get("force"))
	}
	return force, nil
}
