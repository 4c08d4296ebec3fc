// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Hypervisor is this package's part of hv.Hypervisor.
type Hypervisor interface {
	Up() bool
	Domains(ctx context.Context) ([]hv.Domain, error)
}
