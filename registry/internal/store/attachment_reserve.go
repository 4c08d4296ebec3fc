// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/volferry/volferry/internal/api"
)

// ReserveAttachment keeps a volume for an instance.
func (s *Store) ReserveAttachment(context.Context, Call, api.AttachmentReserve) (api.Attachment, error) {
	return api.Attachment{}, api.Errorf(api.CodeInternal, "not made yet")
}

// TransitionAttachment moves an attachment to another state.
func (s *Store) TransitionAttachment(context.Context, Call, string, api.AttachmentTransition) (api.Attachment, error) {
	return api.Attachment{}, api.Errorf(api.CodeInternal, "not made yet")
}

// ReleaseAttachment ends an attachment.
func (s *Store) ReleaseAttachment(context.Context, Call, string, api.AttachmentRelease) (api.Attachment, error) {
	return api.Attachment{}, api.Errorf(api.CodeInternal, "not made yet")
}

// ForceDeleteAttachment ends an attachment of a fenced host.
func (s *Store) ForceDeleteAttachment(context.Context, Call, string) (api.Attachment, error) {
	return api.Attachment{}, api.Errorf(api.CodeInternal, "not made yet")
}

// Policies returns every policy.
func (s *Store) Policies(context.Context) ([]api.Policy, error) {
	return nil, api.Errorf(api.CodeInternal, "not made yet")
}

// SetPolicy turns a policy on or off.
func (s *Store) SetPolicy(context.Context, Call, string, api.PolicyUpdate) (api.Policy, error) {
	return api.Policy{}, api.Errorf(api.CodeInternal, "not made yet")
}

// RetypePlan says how a volume gets another type.
type RetypePlan struct {
	// InPlace: the volume may stay where it is. Else it has to be moved to ToPool.
	InPlace bool
	Volume  api.Volume
	ToPool  string
}

// PlanRetype says what a retype takes.
func (s *Store) PlanRetype(context.Context, string, api.VolumeRetype) (RetypePlan, error) {
	return RetypePlan{}, api.Errorf(api.CodeInternal, "not made yet")
}

// RetypeVolume gives a volume another type.
func (s *Store) RetypeVolume(context.Context, Call, string, api.VolumeRetype) (api.Volume, error) {
	return api.Volume{}, api.Errorf(api.CodeInternal, "not made yet")
}
