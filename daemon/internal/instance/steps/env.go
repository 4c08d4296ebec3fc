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

// Host is this host as the registry knows it.
type Host struct {
	ID    string
	Name  string
	Epoch int64
}

// named reports whether a document names this host, which it does by name or by id.
func (h Host) named(name string) bool { return name != "" && (name == h.ID || name == h.Name) }

// Env is what the steps share: the ports, and who this host is.
type Env struct {
	Ports
	// host answers for this host once it was told who it is, registry away or not.
	host    func(context.Context) (Host, error)
	log     *slog.Logger
	cfg     Config
	journal op.Journal
	// runner runs the ops.
	runner Runner
	// unresumed are the guests of moves of shared volumes, by instance.
	unresumed request.Unresumed
}

// Runner is the part of the runner of their ops that the steps need (op.Runner).
type Runner interface {
	// Submit stores and starts an op that follows another op.
	Submit(ctx context.Context, o op.Op) error
	// Active returns the ops that are not finished.
	Active() []op.Status
	Status(ctx context.Context, opID string) (op.Status, error)
}

// Config has the settings of the steps.
type Config struct {
	// SaveDir is the directory of save images. BootID tells one boot of this host from
	// another; if it is empty, each new Env counts as a new boot.
	SaveDir, BootID string
}

// NewEnv makes an Env on these ports. Host returns this host.
func NewEnv(cfg Config, ports Ports, runner Runner, journal op.Journal, host func(context.Context) (Host, error), log *slog.Logger) *Env {
	cfg.BootID = cmp.Or(cfg.BootID, uuid.NewString())
	return &Env{Ports: ports, runner: runner, host: host, log: log, cfg: cfg, journal: journal}
}

// FreeBytes returns how much room there is for save images.
func (e *Env) FreeBytes() (int64, error) { return e.Images.FreeBytes(e.cfg.SaveDir) }

// Unresumed says why guests are paused that libvirt does not resume.
func (e *Env) Unresumed() []string { return e.unresumed.All() }

// SavesInMemory reports whether save images are in this host's own memory.
func (e *Env) SavesInMemory() (bool, error) { return e.Images.InMemory(e.cfg.SaveDir) }

// stepReport tells the registry what the op has made of the instance, so that
// whoever waited for the op finds the registry knowing it. Libvirt that has died
// meanwhile is waited for: without it this host knows nothing to tell.
func (e *Env) stepReport() op.Step {
	return op.Step{Name: stepNameReport, Do: func(ctx context.Context, _ *op.Run) error {
		return e.reported(ctx)
	}}
}

// reported tells the registry of this host's instances. If libvirt does not answer, the
// op waits for it.
func (e *Env) reported(ctx context.Context) error {
	if err := e.Report(ctx); errors.Is(err, hv.ErrUnavailable) {
		return request.HV(err)
	}
	return nil
}
