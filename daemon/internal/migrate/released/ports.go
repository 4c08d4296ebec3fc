// SPDX-License-Identifier: Apache-2.0

package released

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

type hypervisor interface {
	Events(ctx context.Context) <-chan hv.Event
	Domains(ctx context.Context) ([]hv.Domain, error)
}

type images interface {
	Blank(ctx context.Context, l api.Location) (bool, error)
	Stamp(ctx context.Context, path string) (image.Stamp, error)
	Fingerprint(ctx context.Context, path string) (string, error)
	AllocatedBytes(path string) (int64, error)
}

type registry interface {
	Volume(ctx context.Context, id string) (api.Volume, error)
	Migration(ctx context.Context, id string) (api.Migration, error)
}
