// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/guard"
)

type guards interface {
	Clear(domainID string, owner string) error
	Of(domainID string) ([]guard.Guard, error)
}

type movingGuests interface {
	Switching(instanceID string) bool
	MayStart(ctx context.Context, instanceID string) error
}
