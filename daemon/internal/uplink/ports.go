// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Hypervisor is the uplink's part of hv.Hypervisor.
type Hypervisor interface {
	Domains(ctx context.Context) ([]hv.Domain, error)
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	Pools(ctx context.Context) ([]hv.PoolInfo, error)
	PowerOff(ctx context.Context, id string) error
}
