// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// Instances returns every instance.
func (r *Registry) Instances(ctx context.Context) ([]api.Instance, error) {
	return list(ctx, r, routes.ListInstances)
}

// Instance returns one instance.
func (r *Registry) Instance(ctx context.Context, ref string) (api.Instance, error) {
	return ask(ctx, r, routes.ShowInstance, ref)
}

// RegisterInstance stores an adopted instance with its disks.
func (r *Registry) RegisterInstance(ctx context.Context, opID string, in api.InstanceRegister) (api.Instance, error) {
	return change(ctx, r, routes.RegisterInstance, opID, in)
}

// ForgetInstance removes an instance from the registry; its volumes stay.
func (r *Registry) ForgetInstance(ctx context.Context, opID, ref string) error {
	_, err := change(ctx, r, routes.ForgetInstance, opID, routes.None{}, ref)
	return err
}

// Attachments returns the attachments of a volume at an instance. An empty reference means all.
func (r *Registry) Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error) {
	return list(ctx, r, routes.ListAttachments.With("volume", volume).With("instance", instance))
}

// Attachment returns one attachment.
func (r *Registry) Attachment(ctx context.Context, ref string) (api.Attachment, error) {
	return ask(ctx, r, routes.ShowAttachment, ref)
}

// ReserveAttachment is the first step of an attach.
func (r *Registry) ReserveAttachment(ctx context.Context, opID string, in api.AttachmentReserve) (api.Attachment, error) {
	return change(ctx, r, routes.ReserveAttachment, opID, in)
}

// TransitionAttachment moves an attachment to another state.
func (r *Registry) TransitionAttachment(ctx context.Context, opID, id string, in api.AttachmentTransition) (api.Attachment, error) {
	return change(ctx, r, routes.TransitionAttachment, opID, in, id)
}

// ReleaseAttachment ends an attachment and returns its last state. The guest must not have the
// disk.
func (r *Registry) ReleaseAttachment(ctx context.Context, opID, id string, in api.AttachmentRelease) (api.Attachment, error) {
	return change(ctx, r, routes.ReleaseAttachment, opID, in, id)
}

// DeleteAttachment ends an attachment by force. Its host must be fenced, or have found that the
// guest lacks the disk.
func (r *Registry) DeleteAttachment(ctx context.Context, opID, id string) error {
	_, err := change(ctx, r, routes.DeleteAttachment.With("force", "1"), opID, routes.None{}, id)
	return err
}

// TransitionInstance moves an instance from its host to the shelf or back.
func (r *Registry) TransitionInstance(ctx context.Context, opID, ref string, in api.InstanceTransition) (api.ShelvedInstance, error) {
	return change(ctx, r, routes.TransitionInstance, opID, in, ref)
}
