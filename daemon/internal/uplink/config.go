// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/internal/api"
)

// Registry has the registry's calls that the uplink makes (client.Registry).
type Registry interface {
	Report(ctx context.Context, report api.HostReport) (api.Host, error)
	RejoinHost(ctx context.Context, host string, in api.HostRejoin) (api.Host, error)
	Tasks(ctx context.Context, host, session string, wait time.Duration) ([]api.Task, error)
	AnswerTask(ctx context.Context, host, task string, in api.TaskAnswer) error

	Hosts(ctx context.Context) ([]api.Host, error)
	Pools(ctx context.Context) ([]api.Pool, error)
	Types(ctx context.Context) ([]api.VolumeType, error)
	Policies(ctx context.Context) ([]api.Policy, error)
	Volumes(ctx context.Context) ([]api.Volume, error)
	Instances(ctx context.Context) ([]api.Instance, error)
	Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error)
}

// Guards prevents starts of domains (package guard).
type Guards interface {
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	Of(domainID string) ([]guard.Guard, error)
	// List returns the reasons of all guards, by domain.
	List() (map[string]string, error)
}

// Ops has the calls of the op runner that the uplink makes.
type Ops interface {
	// TryLock calls f while no op has one of the keys, and reports whether it called f. It does
	// not wait for an op, because the op may itself wait for the report.
	TryLock(keys []string, f func()) bool
	// Halt returns when no op is at work. No op begins before Resume. Halt may be called again.
	Halt(ctx context.Context) error
	// Resume continues the ops. Each op first checks whether its object still belongs to this host.
	Resume(ctx context.Context) error
}

// Listener is notified of the registry's data about this host.
type Listener interface {
	// Epoch is called with every epoch that the registry reports for this host, before the uplink
	// acts on it.
	Epoch(epoch int64)
	// RegistryUp is called when the registry can be reached again.
	RegistryUp()
	// BeforeHalt is called after a fence of this host, before the ops are halted.
	BeforeHalt(ctx context.Context)
	// Resumed is called when this host has come back from a fence and its ops continue. If it
	// fails, the ops are resumed again, and it is called again.
	Resumed(ctx context.Context) error
}

// Config has this host's identity, and the systems that the uplink uses.
type Config struct {
	HostID   string
	HostName string
	BootID   string
	Version  string
	// State is this host's stored state. The view is stored in the same directory.
	State *State
	// SharedPools are pools that other hosts see too.
	SharedPools []string

	HV       Hypervisor
	Registry Registry
	Guards   Guards
	Ops      Ops
	Log      *slog.Logger
}
