// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"iter"
	"strconv"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
)

// Registry is a client of volferry-registry. A reference may be an id, a name or the
// beginning of an id. Methods that change something take an op id: it stands for one
// request, however often that is sent, so an op that makes several requests needs an id for
// each. An empty op id is for a request that is never sent again. Errors are those of
// Client.Do, with CodeRegistryUnavailable if the registry cannot be reached.
type Registry struct {
	*Client
	through func(ctx context.Context, send func() error) error
}

// registryTimeout bounds every request to the registry, which answers in
// milliseconds when it is well. What waits for it is woken when it is back.
const registryTimeout = 10 * time.Second

// NewRegistry returns a client of the registry at target, which has the form that New
// takes.
func NewRegistry(target string, settings ...Setting) (*Registry, error) {
	ours := []Setting{UnavailableAs(api.CodeRegistryUnavailable), Timeout(registryTimeout)}
	c, err := New(target, append(ours, settings...)...)
	if err != nil {
		return nil, err
	}
	return &Registry{Client: c}, nil
}

// ChangesThrough returns a client that hands every change to through, which sends it by
// calling send: once, several times, or not at all.
func (r *Registry) ChangesThrough(through func(ctx context.Context, send func() error) error) *Registry {
	return &Registry{Client: r.Client, through: through}
}

// ask makes a request that changes nothing, about what refs name.
func ask[Out any](ctx context.Context, r *Registry, route routes.Route[routes.None, Out], refs ...string) (out Out, err error) {
	err = r.Do(ctx, route.Method, route.PathOf(refs...), nil, &out, noun(route.Noun))
	return out, err
}

// each calls do with the things of a list, of which it has one page in memory. After an error of do
// it returns that.
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

// list returns a list, in its order.
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

// eachPage calls do with the pages of a list and their sizes in bytes.
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

// change makes a request that changes what refs name.
func change[In, Out any](ctx context.Context, r *Registry, route routes.Route[In, Out], opID string, in In, refs ...string) (out Out, err error) {
	if peer, known := r.Peer(); known && peer.IsFirst() {
		in = protocol.WithoutIgnorable(in)
	}
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

// Status returns one screen about the registry.
func (r *Registry) Status(ctx context.Context) (api.Status, error) {
	return ask(ctx, r, routes.ShowStatus)
}

// Version returns the version of the registry.
func (r *Registry) Version(ctx context.Context) (string, error) {
	return ask(ctx, r, routes.ShowRegistryVersion)
}

// Report reports this host to the registry and returns what the registry knows of the host,
// above all its epoch. The last report counts, so it takes no op id.
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

// FenceHost tells the registry, on the operator's word, that a host cannot touch any volume
// any more.
func (r *Registry) FenceHost(ctx context.Context, opID, ref string, in api.HostFence) (api.Host, error) {
	return change(ctx, r, routes.FenceHost, opID, in, ref)
}

// RejoinHost tells the registry that a fenced host has let go of what it lost. To do it
// twice changes nothing, so it takes no op id.
func (r *Registry) RejoinHost(ctx context.Context, hostID string, in api.HostRejoin) (api.Host, error) {
	return change(ctx, r, routes.RejoinHost, "", in, hostID)
}

// Pools returns the pools of every host.
func (r *Registry) Pools(ctx context.Context) ([]api.Pool, error) {
	return list(ctx, r, routes.ListPools)
}

// Pool returns the pool with this name on a host. The host may be empty if only one host
// has the pool.
func (r *Registry) Pool(ctx context.Context, name, host string) (api.Pool, error) {
	return ask(ctx, r, routes.ShowPool.With("host", host), name)
}

// Events returns the audit trail after since, at most 1000 events of it.
func (r *Registry) Events(ctx context.Context, since int64) ([]api.Event, error) {
	return ask(ctx, r, routes.ListEvents.With("since", strconv.FormatInt(since, 10)))
}

// FollowEvents yields the audit trail after since and then what is added to it,
// as Stream does.
func (r *Registry) FollowEvents(ctx context.Context, since int64) iter.Seq2[api.Event, error] {
	return r.Stream(ctx, routes.ListEvents.With("follow", "1").With("since", strconv.FormatInt(since, 10)).PathOf())
}

// PostEvent adds an event to the audit trail.
func (r *Registry) PostEvent(ctx context.Context, opID string, in api.EventPost) (api.Event, error) {
	return change(ctx, r, routes.PostEvent, opID, in)
}
