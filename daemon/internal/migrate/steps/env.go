// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Env is what the steps share: the ports, and what is known only in memory.
type Env struct {
	hv       hv.Hypervisor
	images   Images
	copier   Copier
	registry Registry
	guards   Guards
	claims   *location.Claims
	mayMove  func(ctx context.Context, volumeID string) error
	audit    func(e api.EventPost)
	history  History
	progress *progressTracker
	log      *slog.Logger
	now      func() time.Time
	// stopping is cancelled, by stop, when the daemon is told to stop: from then on no
	// guest is paused.
	stopping context.Context
	stop     context.CancelFunc
	// host answers for this host, and fence knows when it was fenced.
	host  func(context.Context) (Host, error)
	fence fence
}

// NewEnv makes an Env on these ports. Change is told the id of each migration whose
// progress changes.
func NewEnv(ports Ports, history History, host func(context.Context) (Host, error), change func(migrationID string), log *slog.Logger) *Env {
	e := &Env{
		hv: ports.HV, images: ports.Images, copier: ports.Copier, registry: ports.Registry, guards: ports.Guards, claims: ports.Claims, mayMove: ports.MayMove, audit: ports.Audit,
		history: history, progress: newProgressTracker(change), log: log, now: ports.Now, host: host,
	}
	e.stopping, e.stop = context.WithCancel(context.Background())
	return e
}

// Bandwidth is the cap of a migration's copy now: what the operator said last, even before
// a restart, else what the migration was started with.
func (e *Env) Bandwidth(s *Spec) int64 {
	return e.progress.bandwidth(s.MigrationID, func() int64 {
		bytesPerSecond, set, err := e.copier.Cap(s.CopyKey())
		if err != nil {
			e.log.Warn("cannot read which cap a migration was given", "migration", s.MigrationID, "err", err)
		}
		if err != nil || !set {
			return s.BandwidthBytesPerSecond
		}
		return bytesPerSecond
	})
}

// SetBandwidth changes the cap of a migration's copy, durably; 0 lifts it.
func (e *Env) SetBandwidth(s *Spec, bytesPerSecond int64) error {
	if err := e.copier.SetCap(s.CopyKey(), bytesPerSecond); err != nil {
		return err
	}
	e.progress.setBandwidth(s.MigrationID, bytesPerSecond)
	return nil
}

// Progress is how far the op of a migration is; ok is false if none moves bytes.
func (e *Env) Progress(migrationID string) (p Progress, ok bool) {
	return e.progress.get(migrationID)
}

// waitShutdown is what a switch waits for if it would begin while the daemon stops: the
// next start of the daemon.
const waitShutdown = "shutdown"

// StopPausing is called when the daemon is told to stop: no guest is paused any more.
func (e *Env) StopPausing() { e.stop() }

// mayPause holds back a switch that would begin while the daemon stops.
func (e *Env) mayPause() error {
	if e.stopping.Err() != nil {
		return op.WaitFor(waitShutdown, errors.New("the daemon is stopping"))
	}
	return nil
}

// Bounds of the waits inside steps.
const (
	// jobPoll is how often a running block job is looked at.
	jobPoll = 100 * time.Millisecond
	// drainPoll is how often it is looked at while the guest is paused, where every
	// millisecond is a stall.
	drainPoll = 2 * time.Millisecond
	// DrainBound ends a pause whose job does not get clean; then the guest
	// runs on and the op is undone.
	DrainBound = 5 * time.Second
	// CommitBound is how long an active commit may get nowhere before the guest
	// is slowed down, and then how long before it is paused.
	CommitBound = 10 * time.Second
)

// step makes an op.Step of functions that take the spec. Undo and observe may
// be nil.
func step(name string, do, undo op.DoFunc[Spec], observe op.ObserveFunc[Spec]) op.Step {
	return op.StepOf(specOf, name, do, undo, observe)
}
