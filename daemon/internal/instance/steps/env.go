// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// Host is this host's identity in the registry.
type Host struct {
	ID    string
	Name  string
	Epoch int64
}

// named reports whether a document names this host, by name or by id.
func (h Host) named(name string) bool { return name != "" && (name == h.ID || name == h.Name) }

// Env has what the steps share: the ports, and this host's identity.
type Env struct {
	Ports
	// host returns this host's identity. Once it is known, the registry need not answer.
	host    func(context.Context) (Host, error)
	log     *slog.Logger
	cfg     Config
	journal op.Journal
	// runner runs the ops.
	runner Runner
	// unresumed has the guests, by instance, that moves of shared volumes could not resume.
	unresumed request.Unresumed
}

// Runner is the part of op.Runner that the steps need.
type Runner interface {
	// Submit stores and starts an op that follows another op.
	Submit(ctx context.Context, o op.Op) error
	// Active returns the unfinished ops.
	Active() []op.Status
	Status(ctx context.Context, opID string) (op.Status, error)
}

// Config has the settings of the steps.
type Config struct {
	// SaveDir is the directory of save images. BootID identifies this boot of the host; if it is
	// empty, each new Env counts as a new boot.
	SaveDir, BootID string
}

// NewEnv returns an Env on these ports. Host returns this host's identity.
func NewEnv(cfg Config, ports Ports, runner Runner, journal op.Journal, host func(context.Context) (Host, error), log *slog.Logger) *Env {
	cfg.BootID = cmp.Or(cfg.BootID, uuid.NewString())
	return &Env{Ports: ports, runner: runner, host: host, log: log, cfg: cfg, journal: journal}
}

// FreeBytes returns the free space for save images.
func (e *Env) FreeBytes() (int64, error) { return e.Images.FreeBytes(e.cfg.SaveDir) }

// Unresumed returns the reasons why guests stay paused that libvirt does not resume.
func (e *Env) Unresumed() []string { return e.unresumed.All() }

// SavesInMemory reports whether save images are in this host's own memory.
func (e *Env) SavesInMemory() (bool, error) { return e.Images.InMemory(e.cfg.SaveDir) }

// stepReport reports the instance's new state, so that a caller who waited for the op finds it at
// the registry. It waits for a dead libvirtd, because without it this host has no state to report.
func (e *Env) stepReport() op.Step {
	return op.Step{Name: stepNameReport, Do: func(ctx context.Context, _ *op.Run) error {
		return e.reported(ctx)
	}}
}

// reported reports this host's instances. If libvirt does not answer, the op waits for it.
func (e *Env) reported(ctx context.Context) error {
	if err := e.Report(ctx); errors.Is(err, hv.ErrUnavailable) {
		return request.HV(err)
	}
	return nil
}
