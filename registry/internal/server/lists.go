// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

type bound struct{ rows, bytes int }

var (
	// ofPage bounds a page. A page has at least one object, and all objects with the same key.
	ofPage = bound{1000, 1 << 20}
	// ofWhole bounds the answer to a caller that does not support pages; a longer list is refused.
	ofWhole = bound{1 << 30, 64 << 20}
)

type walk[T any] func(r *http.Request, after string, do ledger.Visit[T]) error

// list returns a route that answers with a page of the objects that the function each visits, or
// with all to a caller that does not support pages.
func list[T any](route routes.Route[routes.None, []T], each walk[T]) httpjson.Route {
	return listFilled(route, each, nil)
}

// listFilled is like list, and replaces each object after the read by the result of fill.
func listFilled[T any](route routes.Route[routes.None, []T], each walk[T], fill func(context.Context, T) T) httpjson.Route {
	return route.ServedByRegistry(func(w http.ResponseWriter, r *http.Request) error {
		found := page[T]{bound: ofWhole}
		paged := wantsPages(r)
		if paged {
			found.bound = ofPage
		}
		if err := each(r, r.URL.Query().Get(routes.AfterParameter), found.add); err != nil {
			return err
		}
		if fill != nil {
			var err error
			if found, err = found.filled(func(thing T) T { return fill(r.Context(), thing) }); err != nil {
				return err
			}
		}
		if !paged {
			return found.writeWhole(w, route)
		}
		return found.write(w, route)
	})
}

// wantsPages reports whether the caller supports pages. A daemon that passes on a request
// announces the features of its caller.
func wantsPages(r *http.Request) bool {
	return r.URL.Query().Has(routes.AfterParameter) || len(protocol.AnnouncedIn(r.Header).Lacks([]string{protocol.Pages})) == 0
}

type page[T any] struct {
	bound
	rows  []row[T]
	bytes int
	// next is the key of the last row, if there is more.
	next string
}

type row[T any] struct {
	key   string
	thing T
	text  json.RawMessage
}

// add adds an object, unless the page is full. Objects with the same key are on the same page.
func (p *page[T]) add(key string, thing T) (more bool, err error) {
	text, err := json.Marshal(thing)
	if err != nil {
		return false, fmt.Errorf("encode %s: %w", key, err)
	}
	if n := len(p.rows); n > 0 && (n >= p.bound.rows || p.bytes+len(text) > p.bound.bytes) && p.rows[n-1].key != key {
		p.next = p.rows[n-1].key
		return false, nil
	}
	p.rows, p.bytes = append(p.rows, row[T]{key, thing, text}), p.bytes+len(text)
	return true, nil
}

// filled returns the page with each object replaced by the result of fill. It omits the last
// results beyond the bound.
func (p *page[T]) filled(fill func(T) T) (page[T], error) {
	out := page[T]{bound: p.bound}
	for _, r := range p.rows {
		if more, err := out.add(r.key, fill(r.thing)); err != nil || !more {
			return out, err
		}
	}
	out.next = p.next
	return out, nil
}

func (p *page[T]) write(w http.ResponseWriter, route routes.Route[routes.None, []T]) error {
	texts := make([]json.RawMessage, len(p.rows))
	for i, r := range p.rows {
		texts[i] = r.text
	}
	nouns := []httpjson.Noun{{Name: route.Noun, Value: texts}}
	if p.next != "" {
		nouns = append(nouns, httpjson.Noun{Name: routes.Next, Value: p.next})
	}
	return httpjson.WriteAll(w, http.StatusOK, nouns...)
}

func (p *page[T]) writeWhole(w http.ResponseWriter, route routes.Route[routes.None, []T]) error {
	if p.next != "" {
		return api.Errorf(api.CodeInvalidArgument, "the list has more than %d MiB, which is the most in one answer; read it in pages: ask with the query parameter after, empty at first, and then the next of the answer before", ofWhole.bytes>>20)
	}
	routes.SortBy(route, p.rows, func(r row[T]) T { return r.thing })
	return p.write(w, route)
}

// seen visits the objects that the store lets the caller see.
func seen[T any](each func(ctx context.Context, as store.Viewer, after string, do ledger.Visit[T]) error) walk[T] {
	return func(r *http.Request, after string, do ledger.Visit[T]) error {
		return each(r.Context(), viewerOf(r), after, do)
	}
}

func inMemory[T any](all func(context.Context, store.Viewer) ([]T, error), key func(*T) string) walk[T] {
	return func(r *http.Request, after string, do ledger.Visit[T]) error {
		things, err := all(r.Context(), viewerOf(r))
		if err != nil {
			return err
		}
		slices.SortFunc(things, func(a, b T) int { return strings.Compare(key(&a), key(&b)) })
		for i := range things {
			if key := key(&things[i]); key > after {
				if more, err := do(key, things[i]); err != nil || !more {
					return err
				}
			}
		}
		return nil
	}
}

func alike[T any](all func(context.Context) ([]T, error)) func(context.Context, store.Viewer) ([]T, error) {
	return func(ctx context.Context, _ store.Viewer) ([]T, error) { return all(ctx) }
}
