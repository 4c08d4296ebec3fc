// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Domains reads the domains of this host.
type Domains interface {
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	Domains(ctx context.Context) ([]hv.Domain, error)
	Events(ctx context.Context) <-chan hv.Event
}

// Disks adds and removes the disks of a domain.
type Disks interface {
	AttachDisk(ctx context.Context, id string, where hv.Where, disk hv.DiskSpec) error
	DetachDisk(ctx context.Context, id string, where hv.Where, target string) error
	DiskDefinition(ctx context.Context, id string, where hv.Where, target string) (string, error)
	ParseDisk(definition string) (hv.Disk, error)
}

// Processes reads the processes of domains.
type Processes interface {
	hv.QEMUUsers
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
	DeniesBelow(ctx context.Context, id string) (bool, error)
}
