// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/url"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/store"
)

type handler = httpjson.Handler

func read[Out any](route routes.Route[routes.None, Out], do func(r *http.Request, query url.Values) (Out, error)) httpjson.Route {
	return route.ServedByRegistry(func(w http.ResponseWriter, r *http.Request) error {
		v, err := do(r, r.URL.Query())
		if err != nil {
			return err
		}
		return route.Write(w, http.StatusOK, v)
	})
}

func show[T any](route routes.Route[routes.None, T], one func(context.Context, string, store.Viewer) (T, error)) httpjson.Route {
	return read(route, func(r *http.Request, _ url.Values) (T, error) {
		return one(r.Context(), httpjson.Reference(r), viewerOf(r))
	})
}

func shown[T any](one func(context.Context, string) (T, error)) func(context.Context, string, store.Viewer) (T, error) {
	return func(ctx context.Context, ref string, _ store.Viewer) (T, error) { return one(ctx, ref) }
}

// write returns a route that calls do with the body and answers with the result.
func write[In, Out any](route routes.Route[In, Out], status int, do func(*http.Request, store.Call, In) (Out, error)) httpjson.Route {
	return route.ServedByRegistry(func(w http.ResponseWriter, r *http.Request) error {
		call, in, err := readChange[In](r)
		if err != nil {
			return err
		}
		v, err := do(r, call, in)
		if err != nil {
			return err
		}
		return route.Write(w, status, v)
	})
}

func create[In, Out any](route routes.Route[In, Out], do func(context.Context, store.Call, In) (Out, error)) httpjson.Route {
	return write(route, http.StatusCreated, func(r *http.Request, call store.Call, in In) (Out, error) {
		return do(r.Context(), call, in)
	})
}

// change is write for the object that the path names.
func change[In, Out any](route routes.Route[In, Out], do func(context.Context, store.Call, string, In) (Out, error)) httpjson.Route {
	return write(route, http.StatusOK, func(r *http.Request, call store.Call, in In) (Out, error) {
		return do(r.Context(), call, httpjson.Reference(r), in)
	})
}

func remove[Out any](route routes.Route[routes.None, Out], do func(context.Context, store.Call, string) (Out, error)) httpjson.Route {
	return route.ServedByRegistry(func(w http.ResponseWriter, r *http.Request) error {
		call, err := readCall(r)
		if err != nil {
			return err
		}
		v, err := do(r.Context(), call, httpjson.Reference(r))
		if err != nil {
			return err
		}
		return route.Write(w, http.StatusOK, v)
	})
}

func readChange[In any](r *http.Request) (call store.Call, in In, err error) {
	if call, err = readCall(r); err != nil {
		return call, in, err
	}
	return call, in, httpjson.Decode(r, &in)
}
