// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// hypervisor has the calls of hv.Hypervisor that these steps make.
type hypervisor interface {
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	Process(ctx context.Context, id, target string) (hv.Process, error)
}

// copier has the calls of move.Copier that these steps make.
type copier interface {
	Restart(key string) error
	Forget(ctx context.Context, key string) error
}
