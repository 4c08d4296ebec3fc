// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

type hypervisor interface {
	SetConfigChain(ctx context.Context, id, target string, chain []hv.Image) error
	RunState(ctx context.Context, id string) (hv.RunState, error)
	Job(ctx context.Context, id, target string) (*hv.Job, error)
	AbortJob(ctx context.Context, id, target string) error
	Suspend(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
	Process(ctx context.Context, id, target string) (hv.Process, error)
}

type images interface {
	Fold(ctx context.Context, overlay string, into []hv.Image) error
}

type guards interface {
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
}

type history interface {
	EndNotStored(ctx context.Context, s *move.Spec) (bool, error)
}
