// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

type hypervisor interface {
	Tracking(ctx context.Context, id string, target string) ([]hv.DirtyBitmap, error)
	Domain(ctx context.Context, id string) (*hv.Domain, error)
}

type images interface {
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
}

type registry interface {
	Volume(ctx context.Context, id string) (api.Volume, error)
	Migration(ctx context.Context, id string) (api.Migration, error)
}
