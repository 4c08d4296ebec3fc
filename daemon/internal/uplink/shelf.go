// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"

	"github.com/volferry/volferry/internal/api"
)

// TransitionInstance changes an instance's state, and stores the instance's attachments as grants
// before the instance gets a domain here.
func (s *Site) TransitionInstance(ctx context.Context, opID, ref string, in api.InstanceTransition) (api.ShelvedInstance, error) {
	got, err := s.Registry.TransitionInstance(ctx, opID, ref, in)
	if err != nil || in.From != api.InstanceShelvedOffloaded {
		return got, err
	}
	granted := make([]api.Attachment, 0, len(got.Attachments))
	for _, a := range got.Attachments {
		a.Host = in.Host
		granted = append(granted, a)
	}
	return got, s.up.grant(granted...)
}
