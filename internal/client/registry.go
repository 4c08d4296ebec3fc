// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"iter"
	"strconv"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// Registry is a client of volferry-registry. A reference is an id, a name or the beginning of an
// id. An op that makes several changes needs an op id for each. An empty op id is for a change
// that is never sent again. Errors are as for Client.Do, with CodeRegistryUnavailable if the
// registry cannot be reached.
type Registry struct {
	*Client
	through func(ctx context.Context, send func() error) error
}

// registryTimeout limits every request to the registry, which normally answers in milliseconds.
const registryTimeout = 10 * time.Second

// NewRegistry returns a client of the registry at target, with the targets of New.
func NewRegistry(target string, settings ...Setting) (*Registry, error) {
	ours := []Setting{UnavailableAs(api.CodeRegistryUnavailable), Timeout(registryTimeout)}
	c, err := New(target, append(ours, settings...)...)
	if err != nil {
		return nil, err
	}
	return &Registry{Client: c}, nil
}

// ChangesThrough returns a client that makes each change with the function through. That function
// sends the change by calling send: once, several times, or not at all.
func (r *Registry) ChangesThrough(through func(ctx context.Context, send func() error) error) *Registry {
	return &Registry{Client: r.Client, through: through}
}

// ask makes the request of a route without a body. refs are the references in its path.
func ask[Out any](ctx context.Context, r *Registry, route routes.Route[routes.None, Out], refs ...string) (out Out, err error) {
	err = r.Do(ctx, route.Method, route.PathOf(refs...), nil, &out, noun(route.Noun))
	return out, err
}

// each calls do with each entry of a list, and holds one page in memory. It stops at the first
// error of do.
func each[T any](ctx context.Context, r *Registry, route routes.Route[routes.None, []T], do func(*T) error) error {
	return eachPage(ctx, r, route, func(things []T, _ int) error {
		for i := range things {
			if err := do(&things[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func list[T any](ctx context.Context, r *Registry, route routes.Route[routes.None, []T]) ([]T, error) {
	all, bytes := []T{}, 0
	err := eachPage(ctx, r, route, func(things []T, size int) error {
		all, bytes = append(all, things...), bytes+size
		return CheckListBytes(bytes)
	})
	if err != nil {
		return nil, err
	}
	routes.Sort(route, all)
	return all, nil
}

// eachPage calls do with each page of a list and its size in bytes.
func eachPage[T any](ctx context.Context, r *Registry, route routes.Route[routes.None, []T], do func(things []T, bytes int) error) error {
	return FollowPages(func(after string) (next string, err error) {
		var text json.RawMessage
		if err := r.Do(ctx, route.Method, route.With(routes.AfterParameter, after).PathOf(), nil, &text, noun(route.Noun), nextOf(&next)); err != nil {
			return "", err
		}
		var things []T
		if err := json.Unmarshal(text, &things); err != nil {
			return "", api.Errorf(api.CodeInternal, "cannot read the answer to %s: %v", route, err)
		}
		return next, do(things, len(text))
	})
}

func change[In, Out any](ctx context.Context, r *Registry, route routes.Route[In, Out], opID string, in In, refs ...string) (out Out, err error) {
	send := func() error {
		return r.Do(ctx, route.Method, route.PathOf(refs...), route.Body(in), &out, IdempotencyKey(opID), noun(route.Noun))
	}
	if r.through == nil {
		err = send()
	} else {
		err = r.through(ctx, send)
	}
	return out, err
}

// Status returns a summary of the registry.
func (r *Registry) Status(ctx context.Context) (api.Status, error) {
	return ask(ctx, r, routes.ShowStatus)
}

// Version returns the version of the registry.
func (r *Registry) Version(ctx context.Context) (string, error) {
	return ask(ctx, r, routes.ShowRegistryVersion)
}

// Report reports this host and returns the registry's view of it, with its epoch. It has no op id,
// since the last report counts.
func (r *Registry) Report(ctx context.Context, in api.HostReport) (api.Host, error) {
	return change(asReport(ctx), r, routes.ReportHost, "", in, in.ID)
}

// Hosts returns every host.
func (r *Registry) Hosts(ctx context.Context) ([]api.Host, error) {
	return list(ctx, r, routes.ListHosts)
}

// Host returns one host.
func (r *Registry) Host(ctx context.Context, ref string) (api.Host, error) {
	return ask(ctx, r, routes.ShowHost, ref)
}

// FenceHost fences a host.
func (r *Registry) FenceHost(ctx context.Context, opID, ref string, in api.HostFence) (api.Host, error) {
	return change(ctx, r, routes.FenceHost, opID, in, ref)
}

// RejoinHost reports that a fenced host has released its lost volumes. It has no op id, since it
// may be repeated.
func (r *Registry) RejoinHost(ctx context.Context, hostID string, in api.HostRejoin) (api.Host, error) {
	return change(ctx, r, routes.RejoinHost, "", in, hostID)
}

// Pools returns the pools of every host.
func (r *Registry) Pools(ctx context.Context) ([]api.Pool, error) {
	return list(ctx, r, routes.ListPools)
}

// Pool returns the named pool of a host. The host may be empty if only one host has such a pool.
func (r *Registry) Pool(ctx context.Context, name, host string) (api.Pool, error) {
	return ask(ctx, r, routes.ShowPool.With("host", host), name)
}

// Events returns at most 1000 events of the audit trail after the event with the number since.
func (r *Registry) Events(ctx context.Context, since int64) ([]api.Event, error) {
	return ask(ctx, r, routes.ListEvents.With("since", strconv.FormatInt(since, 10)))
}

// FollowEvents yields the events of the audit trail after the number since, and then new events,
// as Stream does.
func (r *Registry) FollowEvents(ctx context.Context, since int64) iter.Seq2[api.Event, error] {
	return r.Stream(ctx, routes.ListEvents.With("follow", "1").With("since", strconv.FormatInt(since, 10)).PathOf())
}

// PostEvent adds an event to the audit trail.
func (r *Registry) PostEvent(ctx context.Context, opID string, in api.EventPost) (api.Event, error) {
	return change(ctx, r, routes.PostEvent, opID, in)
}
