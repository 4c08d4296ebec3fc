// SPDX-License-Identifier: Apache-2.0

// Package subject has the terms of all ops of instances: the op's instance, the op kinds, the
// ports and the refusals.
package subject

import (
	"context"
	"errors"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// Host is this host's identity in the registry.
type Host struct {
	ID    string
	Name  string
	Epoch int64
}

func (h Host) named(name string) bool { return name != "" && (name == h.ID || name == h.Name) }

// Env finds instances. It has the common parts of all steps.
type Env struct {
	cfg        Config
	domains    domainReader
	host       func(context.Context) (Host, error)
	images     Images
	known      Known
	locations  Locations
	migrations Migrations
	registry   Site
	report     func(ctx context.Context) error
}

type domainReader interface {
	Domain(ctx context.Context, id string) (*hv.Domain, error)
}

// Runner has the calls of op.Runner that the steps make.
type Runner interface {
	// Submit stores and starts another op.
	Submit(ctx context.Context, o op.Op) error
	Active() []op.Status
	Status(ctx context.Context, opID string) (op.Status, error)
}

// Config has the settings of the steps.
type Config struct {
	// SaveDir is the directory of save images. BootID identifies this boot of the host; if it is
	// empty, each Env counts as a new boot.
	SaveDir, BootID string
}

// Deps are the ports, the runner and its journal. Host returns this host's identity; it needs the
// registry only once.
type Deps struct {
	Ports

	Cfg     Config
	Runner  Runner
	Journal op.Journal
	Host    func(context.Context) (Host, error)
	Log     *slog.Logger
}

// New makes an Env.
func New(d *Deps) *Env {
	return &Env{
		cfg: d.Cfg, host: d.Host, domains: d.Domains, images: d.Images, known: d.Known, locations: d.Locations, migrations: d.Migrations, registry: d.Registry, report: d.Report,
	}
}

// FreeBytes returns the free space for save images.
func (e *Env) FreeBytes() (int64, error) { return e.images.FreeBytes(e.cfg.SaveDir) }

// SavesInMemory reports whether the directory of save images is in the host's memory.
func (e *Env) SavesInMemory() (bool, error) { return e.images.InMemory(e.cfg.SaveDir) }

// StepReport reports the instance's new state to the registry, so that a caller who has waited for
// the op finds it there. While libvirt is unavailable the op waits.
func (e *Env) StepReport() op.Step {
	return op.Step{Name: stepNameReport, Do: func(ctx context.Context, _ *op.Run) error {
		return e.Reported(ctx)
	}}
}

// Reported sends a report of this host's instances. While libvirt is unavailable it makes the op
// wait.
func (e *Env) Reported(ctx context.Context) error {
	if err := e.report(ctx); errors.Is(err, hv.ErrUnavailable) {
		return request.HV(err)
	}
	return nil
}
