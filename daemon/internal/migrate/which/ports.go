// SPDX-License-Identifier: Apache-2.0

package which

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

type hypervisor interface {
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	Pools(ctx context.Context) ([]hv.PoolInfo, error)
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
}

type images interface {
	Fingerprint(ctx context.Context, path string) (string, error)
}

type registry interface {
	Volume(ctx context.Context, id string) (api.Volume, error)
	Instance(ctx context.Context, id string) (api.Instance, error)
	Migration(ctx context.Context, id string) (api.Migration, error)
}
