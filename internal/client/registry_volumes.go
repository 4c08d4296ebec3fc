// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
)

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

// Policies returns every policy.
func (r *Registry) Policies(ctx context.Context) ([]api.Policy, error) {
	return ask[[]api.Policy](ctx, r, "/v1/policies")
}

// SetPolicy turns a policy on or off.
func (r *Registry) SetPolicy(ctx context.Context, opID, name string, in api.PolicyUpdate) (api.Policy, error) {
	return tell[api.Policy](ctx, r, opID, http.MethodPut, to("policies", name), in)
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

// GrowVolume takes over the size of an image that has grown.
func (r *Registry) GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error) {
	return tell[api.Volume](ctx, r, opID, http.MethodPost, to("volumes", ref)+"/grow", in)
}

// BeginResize keeps everybody from a volume that is made larger.
func (r *Registry) BeginResize(ctx context.Context, opID, ref string, in api.VolumeResizeBegin) (api.Volume, error) {
	return tell[api.Volume](ctx, r, opID, http.MethodPost, to("volumes", ref)+"/resize:begin", in)
}

// EndResize says what size it has, and lets others at it again.
func (r *Registry) EndResize(ctx context.Context, opID, ref string, in api.VolumeResizeEnd) (api.Volume, error) {
	return tell[api.Volume](ctx, r, opID, http.MethodPost, to("volumes", ref)+"/resize:end", in)
}

// RetypeVolume gives a volume another type, where it is. A retype that has to
// move it is answered by the host that does so.
func (r *Registry) RetypeVolume(ctx context.Context, opID, ref string, in api.VolumeRetype) (api.Volume, error) {
	return tell[api.Volume](ctx, r, opID, http.MethodPost, to("volumes", ref)+"/retype", in)
}

// DeleteVolume forgets a volume whose bytes are gone.
func (r *Registry) DeleteVolume(ctx context.Context, opID, ref string) error {
	return r.Do(ctx, http.MethodPost, to("volumes", ref)+"/forget", api.VolumeForget{}, nil, IdempotencyKey(opID))
}
