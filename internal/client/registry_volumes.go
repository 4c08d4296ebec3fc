// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// Types returns every volume type.
func (r *Registry) Types(ctx context.Context) ([]api.VolumeType, error) {
	return list(ctx, r, routes.ListTypes)
}

// Type returns one volume type.
func (r *Registry) Type(ctx context.Context, ref string) (api.VolumeType, error) {
	return ask(ctx, r, routes.ShowType, ref)
}

// CreateType creates a volume type.
func (r *Registry) CreateType(ctx context.Context, opID string, in api.VolumeTypeCreate) (api.VolumeType, error) {
	return change(ctx, r, routes.CreateType, opID, in)
}

// DeleteType removes a volume type.
func (r *Registry) DeleteType(ctx context.Context, opID, ref string) error {
	_, err := change(ctx, r, routes.DeleteType, opID, routes.None{}, ref)
	return err
}

// Policies returns every policy.
func (r *Registry) Policies(ctx context.Context) ([]api.Policy, error) {
	return list(ctx, r, routes.ListPolicies)
}

// Volumes returns every volume.
func (r *Registry) Volumes(ctx context.Context) ([]api.Volume, error) {
	return list(ctx, r, routes.ListVolumes)
}

// EachVolume calls do with every volume until an error, without holding the list in memory.
func (r *Registry) EachVolume(ctx context.Context, do func(*api.Volume) error) error {
	return each(ctx, r, routes.ListVolumes, do)
}

// Volume returns one volume.
func (r *Registry) Volume(ctx context.Context, ref string) (api.Volume, error) {
	return ask(ctx, r, routes.ShowVolume, ref)
}

// RegisterVolume stores a volume.
func (r *Registry) RegisterVolume(ctx context.Context, opID string, in api.VolumeRegister) (api.Volume, error) {
	return change(ctx, r, routes.RegisterVolume, opID, in)
}

// TransitionVolume moves a volume to another status.
func (r *Registry) TransitionVolume(ctx context.Context, opID, ref string, in api.VolumeTransition) (api.Volume, error) {
	return change(ctx, r, routes.TransitionVolume, opID, in, ref)
}

// IdentifyVolume reports the identity of a volume's device.
func (r *Registry) IdentifyVolume(ctx context.Context, opID, ref string, in api.VolumeIdentify) (api.Volume, error) {
	return change(ctx, r, routes.IdentifyVolume, opID, in, ref)
}

// GrowVolume reports the new size of an image that has grown.
func (r *Registry) GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error) {
	return change(ctx, r, routes.GrowVolume, opID, in, ref)
}

// BeginResize locks a volume while its host enlarges it.
func (r *Registry) BeginResize(ctx context.Context, opID, ref string, in api.VolumeResizeBegin) (api.Volume, error) {
	return change(ctx, r, routes.BeginResize, opID, in, ref)
}

// EndResize reports the new size and unlocks the volume.
func (r *Registry) EndResize(ctx context.Context, opID, ref string, in api.VolumeResizeEnd) (api.Volume, error) {
	return change(ctx, r, routes.EndResize, opID, in, ref)
}

// RetypeVolume changes the type of a volume in place. A retype that moves the volume is a request
// to its host.
func (r *Registry) RetypeVolume(ctx context.Context, opID, ref string, in api.VolumeRetype) (api.Volume, error) {
	return change(ctx, r, routes.RetypeVolume, opID, in, ref)
}

// DeleteVolume removes a volume from the registry after its data is deleted.
func (r *Registry) DeleteVolume(ctx context.Context, opID, ref string) error {
	_, err := change(ctx, r, routes.ForgetVolume, opID, api.VolumeForget{}, ref)
	return err
}
