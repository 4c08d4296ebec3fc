// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/registry/internal/store"
)

type handler = func(http.ResponseWriter, *http.Request) error

// list answers with everything of all that the caller sees.
func list[T any](nouns string, all func(context.Context, store.Viewer) ([]T, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if _, err := httpjson.Query(r); err != nil {
			return err
		}
		v, err := all(r.Context(), viewerOf(r))
		if err != nil {
			return err
		}
		return httpjson.Write(w, http.StatusOK, nouns, v)
	}
}

// show answers with what one returns for the thing that the path names.
func show[T any](noun string, one func(context.Context, string, store.Viewer) (T, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if _, err := httpjson.Query(r); err != nil {
			return err
		}
		v, err := one(r.Context(), reference(r), viewerOf(r))
		if err != nil {
			return err
		}
		return httpjson.Write(w, http.StatusOK, noun, v)
	}
}

// listed and shown are for what every caller sees alike.
func listed[T any](all func(context.Context) ([]T, error)) func(context.Context, store.Viewer) ([]T, error) {
	return func(ctx context.Context, _ store.Viewer) ([]T, error) { return all(ctx) }
}

func shown[T any](one func(context.Context, string) (T, error)) func(context.Context, string, store.Viewer) (T, error) {
	return func(ctx context.Context, ref string, _ store.Viewer) (T, error) { return one(ctx, ref) }
}

// create answers 201 with what do made of the body.
func create[In, Out any](noun string, do func(context.Context, store.Call, In) (Out, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		call, in, err := readChange[In](r)
		if err != nil {
			return err
		}
		v, err := do(r.Context(), call, in)
		if err != nil {
			return err
		}
		return httpjson.Write(w, http.StatusCreated, noun, v)
	}
}

// change answers with what do made of the thing that the path names.
func change[In, Out any](noun string, do func(context.Context, store.Call, string, In) (Out, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		call, in, err := readChange[In](r)
		if err != nil {
			return err
		}
		v, err := do(r.Context(), call, reference(r), in)
		if err != nil {
			return err
		}
		return httpjson.Write(w, http.StatusOK, noun, v)
	}
}

// remove answers with what the thing that the path names was.
func remove[Out any](noun string, do func(context.Context, store.Call, string) (Out, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		call, err := readCall(r)
		if err != nil {
			return err
		}
		v, err := do(r.Context(), call, reference(r))
		if err != nil {
			return err
		}
		return httpjson.Write(w, http.StatusOK, noun, v)
	}
}

// reference is the first wildcard of the route's path, however it is called:
// the id, the name or the beginning of an id of a thing.
func reference(r *http.Request) string {
	_, name, _ := strings.Cut(r.Pattern, "{")
	name, _, _ = strings.Cut(name, "}")
	return r.PathValue(name)
}

func readChange[In any](r *http.Request) (call store.Call, in In, err error) {
	if call, err = readCall(r); err != nil {
		return call, in, err
	}
	return call, in, httpjson.Decode(r, &in)
}
