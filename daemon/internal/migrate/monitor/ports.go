// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

type hypervisor interface {
	Events(ctx context.Context) <-chan hv.Event
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	TopImage(ctx context.Context, id string, target string) (string, error)
	Resume(ctx context.Context, id string) error
	Process(ctx context.Context, id string, target string) (hv.Process, error)
}

type guards interface {
	Set(domainID string, owner string, reason string) error
	Clear(domainID string, owner string) error
	Has(domainID string, owner string) (bool, error)
}
