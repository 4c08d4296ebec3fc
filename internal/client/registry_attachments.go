// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
)

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

// ReserveAttachment keeps a volume for an instance: the first step of an attach.
func (r *Registry) ReserveAttachment(ctx context.Context, opID string, in api.AttachmentReserve) (api.Attachment, error) {
	return tell[api.Attachment](ctx, r, opID, http.MethodPost, "/v1/attachments", in)
}

// TransitionAttachment moves an attachment to another state.
func (r *Registry) TransitionAttachment(ctx context.Context, opID, id string, in api.AttachmentTransition) (api.Attachment, error) {
	return tell[api.Attachment](ctx, r, opID, http.MethodPost, to("attachments", id)+"/transition", in)
}

// ReleaseAttachment ends an attachment whose guest does not have the disk, and
// returns what it was.
func (r *Registry) ReleaseAttachment(ctx context.Context, opID, id string, in api.AttachmentRelease) (api.Attachment, error) {
	return tell[api.Attachment](ctx, r, opID, http.MethodPost, to("attachments", id)+"/release", in)
}

// DeleteAttachment ends one attachment by force, whose host is fenced or finds
// that the guest does not have the disk.
func (r *Registry) DeleteAttachment(ctx context.Context, opID, id string) error {
	return r.Do(ctx, http.MethodDelete, to("attachments", id)+"?force=1", nil, nil, IdempotencyKey(opID))
}

// TransitionInstance moves an instance between its host and the shelf.
func (r *Registry) TransitionInstance(ctx context.Context, opID, ref string, in api.InstanceTransition) (api.ShelvedInstance, error) {
	return tell[api.ShelvedInstance](ctx, r, opID, http.MethodPost, to("instances", ref)+"/transition", in)
}
