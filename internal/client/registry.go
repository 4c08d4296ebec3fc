// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// Registry is a client of volferry-registry. Wherever it takes a reference, an
// id, a name or the beginning of an id will do. Methods that change something
// take an op id: one op id stands for one request, however often it is sent,
// so an op that makes several requests needs one for each; "" is for a request
// that is never sent again. Errors are those of Client.Do, with
// CodeRegistryUnavailable if the registry cannot be reached.
type Registry struct {
	*Client
}

// registryTimeout bounds every request to the registry, which answers in
// milliseconds when it is well. What waits for it is woken when it is back.
const registryTimeout = 10 * time.Second

// NewRegistry returns a client of the registry at target, as New takes it.
func NewRegistry(target string, settings ...Setting) (*Registry, error) {
	ours := []Setting{UnavailableAs(api.CodeRegistryUnavailable), Timeout(registryTimeout)}
	c, err := New(target, append(ours, settings...)...)
	if err != nil {
		return nil, err
	}
	return &Registry{Client: c}, nil
}

// ask makes a request that changes nothing.
func ask[T any](ctx context.Context, r *Registry, path string) (T, error) {
	var out T
	err := r.Do(ctx, http.MethodGet, path, nil, &out)
	return out, err
}

// tell makes a request that changes something.
func tell[T any](ctx context.Context, r *Registry, opID, method, path string, in any) (T, error) {
	var out T
	err := r.Do(ctx, method, path, in, &out, IdempotencyKey(opID))
	return out, err
}

// to is the path of the thing that ref names.
func to(collection, ref string) string { return "/v1/" + collection + "/" + url.PathEscape(ref) }

// filtered is the path of a collection with those parameters that have a
// value.
func filtered(collection string, parameters ...string) string {
	query := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			query.Set(parameters[i], parameters[i+1])
		}
	}
	if len(query) == 0 {
		return "/v1/" + collection
	}
	return "/v1/" + collection + "?" + query.Encode()
}

// Status returns one screen about the registry.
func (r *Registry) Status(ctx context.Context) (api.Status, error) {
	return ask[api.Status](ctx, r, "/v1/status")
}

// Report tells the registry of this host and returns what it knows of it: the
// epoch above all. The last report counts, so it takes no op id.
func (r *Registry) Report(ctx context.Context, in api.HostReport) (api.Host, error) {
	return tell[api.Host](ctx, r, "", http.MethodPost, to("hosts", in.ID)+"/report", in)
}

// Hosts returns every host.
func (r *Registry) Hosts(ctx context.Context) ([]api.Host, error) {
	return ask[[]api.Host](ctx, r, "/v1/hosts")
}

// Host returns one host.
func (r *Registry) Host(ctx context.Context, ref string) (api.Host, error) {
	return ask[api.Host](ctx, r, to("hosts", ref))
}

// FenceHost takes the operator's word that a host cannot touch any volume any
// more.
func (r *Registry) FenceHost(ctx context.Context, opID, ref string, in api.HostFence) (api.Host, error) {
	return tell[api.Host](ctx, r, opID, http.MethodPost, to("hosts", ref)+"/fence", in)
}

// RejoinHost says for a host that was fenced that it has let go of what it lost.
// Doing it twice is as good as once, so it takes no op id.
func (r *Registry) RejoinHost(ctx context.Context, hostID string, in api.HostRejoin) (api.Host, error) {
	return tell[api.Host](ctx, r, "", http.MethodPost, to("hosts", hostID)+"/rejoin", in)
}

// Pools returns the pools of every host.
func (r *Registry) Pools(ctx context.Context) ([]api.Pool, error) {
	return ask[[]api.Pool](ctx, r, "/v1/pools")
}

// Pool returns the pool of that name on a host. An empty host will do if only
// one has it.
func (r *Registry) Pool(ctx context.Context, name, host string) (api.Pool, error) {
	return ask[api.Pool](ctx, r, filtered("pools/"+url.PathEscape(name), "host", host))
}

// Events returns the audit trail after since, at most 1000 events of it.
func (r *Registry) Events(ctx context.Context, since int64) ([]api.Event, error) {
	return ask[[]api.Event](ctx, r, fmt.Sprintf("/v1/events?since=%d", since))
}

// FollowEvents yields the audit trail after since and then what is added to it,
// as Stream does.
func (r *Registry) FollowEvents(ctx context.Context, since int64) iter.Seq2[api.Event, error] {
	return r.Stream(ctx, fmt.Sprintf("/v1/events?follow=1&since=%d", since))
}

// PostEvent adds an event to the audit trail.
func (r *Registry) PostEvent(ctx context.Context, opID string, in api.EventPost) (api.Event, error) {
	return tell[api.Event](ctx, r, opID, http.MethodPost, "/v1/events", in)
}
