// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// hypervisor has the calls of subject.Hypervisor that this package makes.
type hypervisor interface {
	SetConfigChain(ctx context.Context, id string, target string, chain []hv.Image) error
}

// site has the calls of subject.Site that this package makes.
type site interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
}

// locations has the calls of subject.Locations that this package makes.
type locations interface {
	Chain(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error)
}

// movingGuests has the calls of subject.MovingGuests that this package makes.
type movingGuests interface {
	Misnamed(ctx context.Context, instanceID string, srcUnwritten bool) ([]hv.NamedChain, error)
	NameStanding(ctx context.Context, instanceID string) error
}
