// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/internal/routes"
)

// readTimeout bounds a read: systemd's socket accepts requests even if the daemon does not start.
const readTimeout = time.Minute

// readAgainFor is how long a read is repeated after a broken connection. systemd keeps the socket
// during a restart.
const readAgainFor = 5 * time.Second

// Get sends the request of a route that only reads; refs are the references in its path.
func Get[Out any](ctx context.Context, s *Session, route routes.Route[routes.None, Out], refs ...string) (Response, error) {
	say := func(line string) { render.Line(s.Stderr, "%s", line) }
	if route.Path == routes.RunDoctor.Path {
		defer s.startCheckNotice(ctx, say)()
	} else {
		defer s.startWaitNotice(ctx, say, "", s.answer())()
	}
	var resp Response
	err := retry.Do(ctx, outageBackoff, readAgainFor, func() (err error) {
		resp, err = s.Call(ctx, route.Method, route.PathOf(refs...), route.Noun, nil, client.Within(readTimeout))
		return err
	}, maybeDone)
	return resp, err
}

// Send sends the request of a route that makes a change. The change is made once, even if the
// connection breaks.
func Send[In, Out any](ctx context.Context, s *Session, route routes.Route[In, Out], in In, refs ...string) (Response, error) {
	return s.change(ctx, route.Method, route.PathOf(refs...), route.Noun, route.Body(in))
}

// Ask sends the request of a route that takes a document and changes nothing.
func Ask[In, Out any](ctx context.Context, s *Session, route routes.Route[In, Out], in In, refs ...string) (*Out, Response, error) {
	say := func(line string) { render.Line(s.Stderr, "%s", line) }
	defer s.startWaitNotice(ctx, say, "", s.answer())()
	resp, err := s.Call(ctx, route.Method, route.PathOf(refs...), route.Noun, in)
	if err != nil {
		return nil, Response{}, err
	}
	out := new(Out)
	return out, resp, resp.Decode(route.Noun, out)
}

// List reads a collection page by page. It returns the objects, and one answer with all of them.
func List[T any](ctx context.Context, s *Session, route routes.Route[routes.None, []T]) ([]T, Response, error) {
	var pages []Response
	size := 0
	err := client.FollowPages(func(after string) (string, error) {
		page, err := Get(ctx, s, route.With(routes.AfterParameter, after))
		if err != nil {
			return "", err
		}
		pages, size = append(pages, page), size+len(page.Members[route.Noun])
		if err := client.CheckListBytes(size); err != nil {
			return "", err
		}
		return client.NextIn(page.Members)
	})
	if err != nil {
		return nil, Response{}, err
	}
	resp := pages[0]
	if len(pages) == 1 && !resp.Has(route.Noun) {
		return nil, resp, nil
	}
	if resp, err = joinPages(route, pages); err != nil {
		return nil, Response{}, err
	}
	var things []T
	err = resp.Decode(route.Noun, &things)
	return things, resp, err
}

// joinPages returns one answer with the objects of all pages in the order of the list; a page has
// the order of their keys.
func joinPages[T any](route routes.Route[routes.None, []T], pages []Response) (Response, error) {
	type item struct {
		thing T
		text  json.RawMessage
	}
	var all []item
	for _, page := range pages {
		var texts []json.RawMessage
		if err := page.Decode(route.Noun, &texts); err != nil {
			return Response{}, err
		}
		for _, text := range texts {
			i := item{text: text}
			if err := json.Unmarshal(text, &i.thing); err != nil {
				return Response{}, fmt.Errorf("decode %s: %w", route.Noun, err)
			}
			all = append(all, i)
		}
	}
	routes.SortBy(route, all, func(i item) T { return i.thing })
	texts := make([][]byte, len(all))
	for i := range all {
		texts[i] = all[i].text
	}
	whole := slices.Concat([]byte("["), bytes.Join(texts, []byte(",")), []byte("]")) // an encoder would change them
	resp := pages[0].With(route.Noun, whole)
	delete(resp.Members, routes.Next)
	return resp, nil
}

// Show reads one object.
func Show[T any](ctx context.Context, s *Session, route routes.Route[routes.None, T], refs ...string) (*T, Response, error) {
	resp, err := Get(ctx, s, route, refs...)
	if err != nil {
		return nil, Response{}, err
	}
	thing := new(T)
	return thing, resp, resp.Decode(route.Noun, thing)
}

// Change sends a change that is complete when the answer arrives.
func Change[In, T any](ctx context.Context, s *Session, route routes.Route[In, T], in In, refs ...string) (*T, Response, error) {
	resp, err := Send(ctx, s, route, in, refs...)
	if err != nil {
		return nil, Response{}, err
	}
	thing := new(T)
	return thing, resp, resp.Decode(route.Noun, thing)
}

// ShowRetrying is Show, and tries again while the other side does not answer.
func ShowRetrying[T any](ctx context.Context, s *Session, route routes.Route[routes.None, T], refs ...string) (thing *T, resp Response, err error) {
	err = retryOutage(ctx, func() error {
		thing, resp, err = Show(ctx, s, route, refs...)
		return err
	})
	return thing, resp, err
}

// change sends a change with a new idempotency key. After a broken connection it repeats both.
func (s *Session) change(ctx context.Context, method, path, field string, in any) (resp Response, err error) {
	key := uuid.NewString()
	display := s.NewDisplay()
	defer s.startWaitNotice(ctx, display.say, key, s.answer())()
	if err := s.awaitProgram(ctx); err != nil {
		return Response{}, err
	}
	sent := false
	err = retry.Do(ctx, outageBackoff, outageTimeout, func() (err error) {
		resp, err = s.Call(ctx, method, path, field, in, client.IdempotencyKey(key))
		return err
	}, func(err error) bool {
		if !isOutage(err) || !sent && !maybeDone(err) {
			return false
		}
		if !sent {
			display.Outage(err)
			sent = true
		}
		return true
	})
	resp.Earlier = err == nil && resp.doneBefore(key)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrMaybeDone, err)
	}
	return resp, err
}

// awaitProgram waits until systemd has started the program. Otherwise the program could carry out
// the request after the user was told that it does not start.
func (s *Session) awaitProgram(ctx context.Context) error {
	if s.ShowUnit == nil {
		return nil
	}
	route := routes.ShowRegistryVersion // both programs have it
	return retry.Do(ctx, outageBackoff, readAgainFor, func() error {
		_, err := s.Call(ctx, route.Method, route.PathOf(), route.Noun, nil, client.Within(readTimeout))
		return err
	}, maybeDone)
}

// ErrMaybeDone reports that the user stopped waiting for the answer to a sent change.
var ErrMaybeDone = errors.New("it may have been done")

func maybeDone(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Details["maybe_done"] == true
}

// Call sends one request and returns the answer, with its value under field. Without an answer the
// error has advice.
func (s *Session) Call(ctx context.Context, method, path, field string, in any, opts ...client.Option) (Response, error) {
	ctx, stop := s.watchUnit(ctx)
	defer stop()
	var doc json.RawMessage
	if err := s.Client.Do(ctx, method, path, in, &doc, append(opts, client.Whole())...); err != nil {
		return Response{}, s.explainUnreachable(ctx, err)
	}
	resp, err := newResponse(field, doc)
	if err == nil {
		s.noteStale(resp)
	}
	return resp, err
}

func (s *Session) stream(ctx context.Context, path string) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		ctx, stop := s.watchUnit(ctx)
		defer stop()
		for e, err := range s.Client.Stream(ctx, path) {
			if err != nil {
				err = s.explainUnreachable(ctx, err)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
