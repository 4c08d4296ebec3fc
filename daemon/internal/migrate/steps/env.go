// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
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
	blobs    Blobs
	// writeLimits is locked while a limit on a guest's writes is changed.
	writeLimits sync.Mutex
	progress    *progressTracker
	unresumed   request.Unresumed
	// jobStart says what a version of QEMU may do to a guest when a block job begins.
	jobStart func(hv.Version) hv.JobStart
	// countPaced counts for how long block jobs were held back.
	countPaced func(time.Duration)
	log        *slog.Logger
	now        func() time.Time
	// stopping is cancelled, by stop, when the daemon is told to stop: from then on no
	// guest is paused.
	stopping context.Context
	stop     context.CancelFunc
	// host answers for this host, and fence knows when it was fenced.
	host  func(context.Context) (Host, error)
	fence fence
	// recordEnds is called before a migration counts as one that the registry does not know.
	recordEnds func(context.Context) error
}

// NewEnv makes an Env on these ports. Change is called with the id of each migration whose
// progress changes.
func NewEnv(ports Ports, history History, host func(context.Context) (Host, error), change func(migrationID string), log *slog.Logger) *Env {
	e := &Env{
		hv: ports.HV, images: ports.Images, copier: ports.Copier, registry: ports.Registry, guards: ports.Guards, claims: ports.Claims, mayMove: ports.MayMove, audit: ports.Audit,
		jobStart: ports.JobStart, history: history, blobs: ports.Blobs, progress: newProgressTracker(change, ports.Now), unresumed: request.Unresumed{Changed: change}, log: log, now: ports.Now, host: host,
	}
	if e.jobStart == nil {
		e.jobStart = hv.JobStartOf
	}
	e.countPaced = ports.CountPaced
	if e.countPaced == nil {
		e.countPaced = func(time.Duration) {}
	}
	e.recordEnds = func(context.Context) error { return nil }
	e.stopping, e.stop = context.WithCancel(context.Background())
	return e
}

// OnForgotten has recordEnds called before anything is decided for a migration that the registry
// does not know: a registry from a backup may have to hear first where the volume was when the
// migration began.
func (e *Env) OnForgotten(recordEnds func(context.Context) error) { e.recordEnds = recordEnds }

// CopyOptions returns how a migration is copied now: as it was started, with the operator's
// last changes, even those from before a restart.
func (e *Env) CopyOptions(s *Spec) api.CopyOptions {
	update := e.progress.update(s.MigrationID, func() api.MigrationUpdate {
		stored, err := e.copier.Update(s.CopyKey())
		if err != nil {
			e.log.Warn("cannot read what was changed of a migration", "migration", s.MigrationID, "err", err)
			return api.MigrationUpdate{}
		}
		return stored
	})
	return update.Apply(s.CopyOptions)
}

// Update changes how a migration copies, durably.
func (e *Env) Update(s *Spec, in api.MigrationUpdate) error {
	before, err := e.copier.Update(s.CopyKey())
	if err != nil {
		return err
	}
	in = in.After(before)
	if err := e.copier.SetUpdate(s.CopyKey(), in); err != nil {
		return err
	}
	e.progress.setUpdate(s.MigrationID, in)
	return nil
}

// standsAfter is how long a copy may be no farther until that is said. One that has a cap may take
// longer, by what a chunk takes then.
const standsAfter = 30 * time.Second

// Progress returns how far the op of a migration is; ok is false if no op moves bytes. A copy says
// nothing while the kernel holds its reads or writes back, as it does for storage that is away:
// that it stands still is said here.
func (e *Env) Progress(s *Spec) (p Progress, ok bool) {
	shown, ok := e.progress.get(s.MigrationID)
	p = shown.Progress
	if p.Phase == jobPhase(s) { // which reports while it stands still
		return p, ok
	}
	bound := standsAfter
	if limit := e.CopyOptions(s).BandwidthBytesPerSecond; limit > 0 {
		bound += time.Duration(float64(copy.ChunkBytes) / float64(limit) * float64(time.Second))
	}
	if idle := e.now().Sub(shown.since); ok && idle >= bound {
		p.RateBytesPerSecond, p.Pacing = 0, pacingIf(doingStandsStill, noProgress(idle))
	}
	return p, ok
}

// waitShutdown is what a switch waits for if it would begin while the daemon stops: the
// next start of the daemon.
const waitShutdown = "shutdown"

// StopPausing is called when the daemon is told to stop: from then on no guest is paused.
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
	// jobPoll is how often a running block job is looked at that nobody paces.
	jobPoll = 100 * time.Millisecond
	// drainPoll is how often it is looked at while the guest is paused, where every
	// millisecond is a stall.
	drainPoll = 2 * time.Millisecond
	// DrainBound ends a pause if the job has not caught up by then: the guest runs on and
	// the op is undone.
	DrainBound = 5 * time.Second
	// CommitBound is how long an active commit may make no progress before the guest is
	// slowed down, and then how long before the guest is paused.
	CommitBound = 10 * time.Second
)

// step makes an op.Step of functions that take the spec. Undo and observe may
// be nil.
func step(name string, do, undo op.DoFunc[Spec], observe op.ObserveFunc[Spec]) op.Step {
	return op.StepOf(specOf, name, do, undo, observe)
}

// remarkOutput is the output of a step that tells the caller something (request.Remark).
type remarkOutput struct {
	Remark string `json:"remark"`
}

// flushEarly puts an image to which the guest writes on stable storage, before the guest is held up
// for that. Only time depends on it, unless the image cannot store what was written to it, of which
// a later flush would know nothing: that is its error.
func (e *Env) flushEarly(ctx context.Context, s *Spec, path string) error {
	err := e.images.Flush(ctx, path)
	if err == nil || notStored(err) {
		return err
	}
	e.notFlushedEarly(s, path, err)
	return nil
}

func (e *Env) notFlushedEarly(s *Spec, path string, err error) {
	e.log.Warn("an image was not flushed before its guest is held up, which may take longer now", "migration", s.MigrationID, "path", path, "err", err)
}

// compare compares two chains of a migration, and shows how far it is.
func (e *Env) compare(ctx context.Context, s *Spec, a, b []hv.Image, sizeBytes int64) error {
	return e.copier.Compare(ctx, a, b, sizeBytes, func(p Progress) { e.progress.set(s.MigrationID, p) })
}
