// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// These limits bound the open requests of each caller, besides connections (service.Bounds), so
// that no caller blocks others. Administrators of the registry's machine have none.
const (
	// maxRequests bounds the requests in progress; more wait.
	maxRequests = 32
	// maxStreams bounds streams and long polls; more are refused.
	maxStreams = 8
	// slotTimeout bounds how long a request waits for the caller's other requests.
	slotTimeout = 20 * time.Second
)

type limits struct {
	mu sync.Mutex
	by map[string]*open
}

type open struct {
	requests chan struct{}
	streams  int
	// users counts the requests that have or wait for a slot; at 0 the entry is removed.
	users int
}

// enter takes a slot for a request of the caller. leave must be called at the request's end.
func (l *limits) enter(ctx context.Context, caller string, lasts bool) (leave func(), err error) {
	o := l.use(caller)
	if lasts {
		return l.enterStream(o, caller)
	}
	leave = func() { <-o.requests; l.leave(o, caller) }
	select {
	case o.requests <- struct{}{}:
		return leave, nil
	default:
	}
	timeout := time.NewTimer(slotTimeout)
	defer timeout.Stop()
	select {
	case o.requests <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		l.leave(o, caller)
		return nil, ctx.Err()
	case <-timeout.C:
		l.leave(o, caller)
		return nil, api.Errorf(api.CodeRegistryUnavailable, "you have %d requests open, and no more are answered until one of them ends; ask again later", maxRequests)
	}
}

func (l *limits) enterStream(o *open, caller string) (leave func(), err error) {
	l.mu.Lock()
	full := o.streams >= maxStreams
	if !full {
		o.streams++
	}
	l.mu.Unlock()
	if full {
		l.leave(o, caller)
		return nil, api.Errorf(api.CodeRegistryUnavailable, "you follow %d things already, which is the most; end one of them first", maxStreams)
	}
	return func() {
		l.mu.Lock()
		o.streams--
		l.mu.Unlock()
		l.leave(o, caller)
	}, nil
}

func (l *limits) use(caller string) *open {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[string]*open{}
	}
	o := l.by[caller]
	if o == nil {
		o = &open{requests: make(chan struct{}, maxRequests)}
		l.by[caller] = o
	}
	o.users++
	return o
}

func (l *limits) leave(o *open, caller string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.users--; o.users == 0 {
		delete(l.by, caller)
	}
}

func lasts(route httpjson.Route, r *http.Request) bool {
	return route.Lines != nil || r.URL.Query().Has("follow") || r.URL.Query().Has("wait_seconds")
}

// withoutCandidates removes the ids of other hosts' objects from a refusal to a host.
func withoutCandidates(r *http.Request, err error) error {
	var refusal *api.Error
	if err == nil || viewerOf(r).HostID == "" || !errors.As(err, &refusal) || refusal.Details["candidates"] == nil {
		return err
	}
	details := maps.Clone(refusal.Details)
	delete(details, "candidates")
	return &api.Error{Code: refusal.Code, Message: "the name or the beginning of an id that was given is of more than one thing; give the whole id", Details: details}
}
