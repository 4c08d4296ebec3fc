// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
)

type hypervisor interface {
	Events(ctx context.Context) <-chan hv.Event
	Connectable(ctx context.Context, path string) (bool, error)
	ConnectDevice(ctx context.Context, path string) error
	DisconnectDevice(ctx context.Context, path string) error
	Suspend(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
	PowerOff(ctx context.Context, id string) error
	PowerOn(ctx context.Context, id string) error
	Shutdown(ctx context.Context, id string) error
	RebootGuest(ctx context.Context, id string) error
}

type guards interface {
	Clear(domainID string, owner string) error
	Of(domainID string) ([]guard.Guard, error)
}

type movingGuests interface {
	Switching(instanceID string) bool
	MayStart(ctx context.Context, instanceID string) error
}
