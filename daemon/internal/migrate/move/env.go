// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Deps are the ports of the steps, and the state in memory that the steps share.
type Deps struct {
	Ports
	History   History
	Progress  *ProgressTracker
	Fence     *Fence
	Unresumed *request.Unresumed
	Host      func(context.Context) (Host, error)
	Log       *slog.Logger
	// Stopping is cancelled when the daemon is asked to stop: from then on no guest is paused.
	Stopping context.Context
	stop     context.CancelFunc
}

// NewDeps makes Deps. It calls change with the id of each migration that makes progress.
func NewDeps(ports Ports, history History, host func(context.Context) (Host, error), change func(migrationID string), log *slog.Logger) *Deps {
	d := &Deps{
		Ports: ports, History: history, Progress: newProgressTracker(change, ports.Now), Fence: &Fence{},
		Unresumed: &request.Unresumed{Changed: change}, Host: host, Log: log,
	}
	if d.JobStart == nil {
		d.JobStart = hv.JobStartOf
	}
	if d.CountPaced == nil {
		d.CountPaced = func(time.Duration) {}
	}
	d.Stopping, d.stop = context.WithCancel(context.Background())
	return d
}

// Env has the common parts of all steps: the disk's state, this host's fence, and the errors of
// the ports, typed for the runner.
type Env struct {
	hv       hypervisor
	images   flusher
	copier   comparer
	updates  CopyUpdates
	registry registry
	progress *ProgressTracker
	fence    *Fence
	log      *slog.Logger
	now      func() time.Time
	stopping context.Context
	stop     context.CancelFunc
	// recordEnds is called before a migration counts as unknown to the registry.
	recordEnds func(context.Context) error
}

// New makes an Env.
func New(d *Deps) *Env {
	return &Env{
		hv: d.HV, images: d.Images, copier: d.Copier, updates: d.Updates, registry: d.Registry, progress: d.Progress, fence: d.Fence, log: d.Log, now: d.Now,
		stopping: d.Stopping, stop: d.stop,
		recordEnds: func(context.Context) error { return nil },
	}
}

type hypervisor interface {
	Domain(ctx context.Context, id string) (*hv.Domain, error)
}

type flusher interface {
	Flush(ctx context.Context, path string) error
}

type comparer interface {
	Compare(ctx context.Context, a, b []hv.Image, sizeBytes int64, progress func(Progress)) error
}

type registry interface {
	Volume(ctx context.Context, id string) (api.Volume, error)
	Migration(ctx context.Context, id string) (api.Migration, error)
}

// OnForgotten sets a function that is called before a migration counts as unknown to the registry.
// A registry that was restored from a backup may first have to learn where the volume was when the
// migration began.
func (e *Env) OnForgotten(recordEnds func(context.Context) error) { e.recordEnds = recordEnds }

// CopyOptions returns the options of the migration's start with the operator's later changes, also
// from before a restart.
func (e *Env) CopyOptions(s *Spec) api.CopyOptions {
	update := e.progress.update(s.MigrationID, func() api.MigrationUpdate {
		stored, err := e.updates.Update(s.CopyKey())
		if err != nil {
			e.log.Warn("cannot read what was changed of a migration", "migration", s.MigrationID, "err", err)
			return api.MigrationUpdate{}
		}
		return stored
	})
	return update.Apply(s.CopyOptions)
}

// Update changes the options of a migration's copy, durably.
func (e *Env) Update(s *Spec, in api.MigrationUpdate) error {
	before, err := e.updates.Update(s.CopyKey())
	if err != nil {
		return err
	}
	in = in.After(before)
	if err := e.updates.SetUpdate(s.CopyKey(), in); err != nil {
		return err
	}
	e.progress.setUpdate(s.MigrationID, in)
	return nil
}

// standsAfter is how long a copy may make no progress before that is shown. The time of a chunk at
// the bandwidth limit is added.
const standsAfter = 30 * time.Second

// Progress returns the progress of a migration's op; ok is false if no op moves bytes. While the
// kernel blocks the I/O of a copy, as for unavailable storage, the copy reports nothing, and
// Progress reports that it makes no progress.
func (e *Env) Progress(s *Spec) (p Progress, ok bool) {
	shown, ok := e.progress.Get(s.MigrationID)
	p = shown.Progress
	if p.Phase == JobPhase(s) { // the job itself reports that it makes no progress
		return p, ok
	}
	bound := standsAfter
	if limit := e.CopyOptions(s).BandwidthBytesPerSecond; limit > 0 {
		bound += time.Duration(float64(copy.ChunkBytes) / float64(limit) * float64(time.Second))
	}
	if idle := e.now().Sub(shown.since); ok && idle >= bound {
		p.RateBytesPerSecond, p.Pacing = 0, PacingIf(DoingStandsStill, NoProgress(idle))
	}
	return p, ok
}

// ForgetProgress removes the progress of a migration's op, which is finished: the next op must not
// show it as its own.
func (e *Env) ForgetProgress(migrationID string) { e.progress.Clear(migrationID) }

// waitShutdown is the wait reason of a switch that would begin while the daemon stops. The switch
// continues after the daemon's next start.
const waitShutdown = "shutdown"

// StopPausing makes MayPause return an error from then on.
func (e *Env) StopPausing() { e.stop() }

// MayPause returns an error that makes the op wait if the daemon stops.
func (e *Env) MayPause() error {
	if e.stopping.Err() != nil {
		return op.WaitFor(waitShutdown, errors.New("the daemon is stopping"))
	}
	return nil
}

// Bounds of the waits inside steps.
const (
	// JobPoll is the interval of looks at a running block job without a pacer.
	JobPoll = 100 * time.Millisecond
	// DrainPoll is JobPoll while the guest is paused.
	DrainPoll = 2 * time.Millisecond
	// DrainBound is how long the job may take to catch up in a pause. Then the guest is resumed
	// and the op is undone.
	DrainBound = 5 * time.Second
	// CommitBound is how long an active commit may make no progress before the guest is limited,
	// and again before the guest is paused.
	CommitBound = 10 * time.Second
)

// Step makes an op.Step of functions that take the spec. undo and observe may be nil.
func Step(name string, do, undo op.DoFunc[Spec], observe op.ObserveFunc[Spec]) op.Step {
	return op.StepOf(SpecOf, name, do, undo, observe)
}

// RemarkOutput is the output of a step with an unexpected result. The migration shows the remark.
type RemarkOutput struct {
	Remark string `json:"remark"`
}

// FlushEarly flushes an image that the guest writes, before a call that would flush it with the
// guest paused. It returns only an *image.NotStoredError, since a later flush would not report the
// lost writes again. It only logs another error: the pause takes longer then.
func (e *Env) FlushEarly(ctx context.Context, s *Spec, path string) error {
	err := e.images.Flush(ctx, path)
	if err == nil || NotStored(err) {
		return err
	}
	e.NotFlushedEarly(s, path, err)
	return nil
}

// NotFlushedEarly logs an early flush that failed or timed out.
func (e *Env) NotFlushedEarly(s *Spec, path string, err error) {
	e.log.Warn("an image was not flushed before its guest is held up, which may take longer now", "migration", s.MigrationID, "path", path, "err", err)
}

// Compare compares two chains as the guest sees them, and shows the progress of the comparison.
func (e *Env) Compare(ctx context.Context, s *Spec, a, b []hv.Image, sizeBytes int64) error {
	return e.copier.Compare(ctx, a, b, sizeBytes, func(p Progress) { e.progress.Set(s.MigrationID, p) })
}
