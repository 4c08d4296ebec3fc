// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Domains reads the domains of this host.
type Domains interface {
	Domains(ctx context.Context) ([]hv.Domain, error)
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
}

// Definitions reads, makes, changes and removes persistent definitions.
type Definitions interface {
	hv.Definitions
	DiskDefinition(ctx context.Context, id string, where hv.Where, target string) (string, error)
	SetConfigChain(ctx context.Context, id, target string, chain []hv.Image) error
}

// Power starts, pauses and ends the processes of domains, and reports their events.
type Power interface {
	hv.Power
	Events(ctx context.Context) <-chan hv.Event
}
