// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Hypervisor is this package's part of hv.Hypervisor.
type Hypervisor interface {
	Events(ctx context.Context) <-chan hv.Event
	ParseDisk(definition string) (hv.Disk, error)
	Connectable(ctx context.Context, path string) (bool, error)
	ConnectDevice(ctx context.Context, path string) error
	DisconnectDevice(ctx context.Context, path string) error
	Domains(ctx context.Context) ([]hv.Domain, error)
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	AttachDisk(ctx context.Context, id string, where hv.Where, disk hv.DiskSpec) error
	DetachDisk(ctx context.Context, id string, where hv.Where, target string) error
	DiskDefinition(ctx context.Context, id string, where hv.Where, target string) (string, error)
	Pools(ctx context.Context) ([]hv.PoolInfo, error)
	LookupVolume(ctx context.Context, pool, name string) (*hv.PoolVolume, error)
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
	Process(ctx context.Context, id, target string) (hv.Process, error)
	QEMUVersion(ctx context.Context, id string) (hv.Version, error)
	WriteDeniedBy(ctx context.Context, id, path string) (*hv.Rule, error)
	QEMUUser(ctx context.Context, id string) (hv.ProcessUser, error)
}
