// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Hypervisor has the calls of hv.Hypervisor that the uplink makes.
type Hypervisor interface {
	Domains(ctx context.Context) ([]hv.Domain, error)
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	Pools(ctx context.Context) ([]hv.PoolInfo, error)
	PowerOff(ctx context.Context, id string) error
}
