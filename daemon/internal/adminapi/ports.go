// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Hypervisor has the calls of hv.Hypervisor that this package makes.
type Hypervisor interface {
	Up() bool
	Answers(ctx context.Context) error
	Domains(ctx context.Context) ([]hv.Domain, error)
}
