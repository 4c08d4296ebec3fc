// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

type definitions interface {
	SetConfigChain(ctx context.Context, id string, target string, chain []hv.Image) error
}

type site interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
}

type locations interface {
	Chain(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error)
}

type movingGuests interface {
	Misnamed(ctx context.Context, instanceID string, srcUnwritten bool) ([]hv.NamedChain, error)
	NameStanding(ctx context.Context, instanceID string) error
}
