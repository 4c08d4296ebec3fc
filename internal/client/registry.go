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
func NewRegistry(target string) (*Registry, error) {
	c, err := New(target, UnavailableAs(api.CodeRegistryUnavailable), Timeout(registryTimeout))
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

// Pools returns the pools of every host.
func (r *Registry) Pools(ctx context.Context) ([]api.Pool, error) {
	return ask[[]api.Pool](ctx, r, "/v1/pools")
}

// Pool returns the pool of that name on a host. An empty host will do if only
// one has it.
func (r *Registry) Pool(ctx context.Context, name, host string) (api.Pool, error) {
	return ask[api.Pool](ctx, r, filtered("pools/"+url.PathEscape(name), "host", host))
}

// Types returns every volume type.
func (r *Registry) Types(ctx context.Context) ([]api.VolumeType, error) {
	return ask[[]api.VolumeType](ctx, r, "/v1/types")
}

// Type returns one volume type.
func (r *Registry) Type(ctx context.Context, ref string) (api.VolumeType, error) {
	return ask[api.VolumeType](ctx, r, to("types", ref))
}

// CreateType makes a volume type.
func (r *Registry) CreateType(ctx context.Context, opID string, in api.VolumeTypeCreate) (api.VolumeType, error) {
	return tell[api.VolumeType](ctx, r, opID, http.MethodPost, "/v1/types", in)
}

// UpdateType changes a volume type.
func (r *Registry) UpdateType(ctx context.Context, opID, ref string, in api.VolumeTypeUpdate) (api.VolumeType, error) {
	return tell[api.VolumeType](ctx, r, opID, http.MethodPatch, to("types", ref), in)
}

// DeleteType removes a volume type.
func (r *Registry) DeleteType(ctx context.Context, opID, ref string) error {
	return r.Do(ctx, http.MethodDelete, to("types", ref), nil, nil, IdempotencyKey(opID))
}

// Volumes returns every volume.
func (r *Registry) Volumes(ctx context.Context) ([]api.Volume, error) {
	return ask[[]api.Volume](ctx, r, "/v1/volumes")
}

// Volume returns one volume.
func (r *Registry) Volume(ctx context.Context, ref string) (api.Volume, error) {
	return ask[api.Volume](ctx, r, to("volumes", ref))
}

// RegisterVolume records a volume.
func (r *Registry) RegisterVolume(ctx context.Context, opID string, in api.VolumeRegister) (api.Volume, error) {
	return tell[api.Volume](ctx, r, opID, http.MethodPost, "/v1/volumes:register", in)
}

// UpdateVolume renames a volume or makes it bootable.
func (r *Registry) UpdateVolume(ctx context.Context, opID, ref string, in api.VolumeUpdate) (api.Volume, error) {
	return tell[api.Volume](ctx, r, opID, http.MethodPatch, to("volumes", ref), in)
}

// TransitionVolume moves a volume to another status.
func (r *Registry) TransitionVolume(ctx context.Context, opID, ref string, in api.VolumeTransition) (api.Volume, error) {
	return tell[api.Volume](ctx, r, opID, http.MethodPost, to("volumes", ref)+"/transition", in)
}

// DeleteVolume forgets a volume.
func (r *Registry) DeleteVolume(ctx context.Context, opID, ref string) error {
	return r.Do(ctx, http.MethodPost, to("volumes", ref)+"/forget", api.VolumeForget{}, nil, IdempotencyKey(opID))
}

// Instances returns every instance.
func (r *Registry) Instances(ctx context.Context) ([]api.Instance, error) {
	return ask[[]api.Instance](ctx, r, "/v1/instances")
}

// Instance returns one instance.
func (r *Registry) Instance(ctx context.Context, ref string) (api.Instance, error) {
	return ask[api.Instance](ctx, r, to("instances", ref))
}

// RegisterInstance records an adopted instance with its disks.
func (r *Registry) RegisterInstance(ctx context.Context, opID string, in api.InstanceRegister) (api.Instance, error) {
	return tell[api.Instance](ctx, r, opID, http.MethodPost, "/v1/instances:register", in)
}

// ForgetInstance ends the care of an instance; its volumes stay.
func (r *Registry) ForgetInstance(ctx context.Context, opID, ref string) error {
	return r.Do(ctx, http.MethodDelete, to("instances", ref), nil, nil, IdempotencyKey(opID))
}

// Attachments returns the attachments of a volume and at an instance; an empty
// reference is any.
func (r *Registry) Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error) {
	return ask[[]api.Attachment](ctx, r, filtered("attachments", "volume", volume, "instance", instance))
}

// Attachment returns one attachment.
func (r *Registry) Attachment(ctx context.Context, ref string) (api.Attachment, error) {
	return ask[api.Attachment](ctx, r, to("attachments", ref))
}

// Migrations returns the open migrations, or all, of a volume; an empty
// reference is any.
func (r *Registry) Migrations(ctx context.Context, volume string, all bool) ([]api.Migration, error) {
	flag := ""
	if all {
		flag = "1"
	}
	return ask[[]api.Migration](ctx, r, filtered("migrations", "volume", volume, "all", flag))
}

// Migration returns one migration.
func (r *Registry) Migration(ctx context.Context, ref string) (api.Migration, error) {
	return ask[api.Migration](ctx, r, to("migrations", ref))
}

// RegisterMigration locks a volume for a migration and reserves its dst.
func (r *Registry) RegisterMigration(ctx context.Context, opID string, in api.MigrationRegister) (api.Migration, error) {
	return tell[api.Migration](ctx, r, opID, http.MethodPost, "/v1/migrations:register", in)
}

// TransitionMigration moves a migration to another state.
func (r *Registry) TransitionMigration(ctx context.Context, opID, ref string, in api.MigrationTransition) (api.Migration, error) {
	return tell[api.Migration](ctx, r, opID, http.MethodPost, to("migrations", ref)+"/transition", in)
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
