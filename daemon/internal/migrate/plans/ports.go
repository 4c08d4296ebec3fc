// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

type hypervisor interface {
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	Process(ctx context.Context, id, target string) (hv.Process, error)
}

type copier interface {
	Restart(key string) error
	Forget(ctx context.Context, key string) error
}
