// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// way is one of the two ends that a running guest's overlay may be folded
// into: dst (complete) or src (cancel).
type way struct {
	kind  hv.JobKind
	to    func(*Spec) hv.Image
	chain func(*Spec) []hv.Image
	at    place
}

var (
	toDst = way{kind: hv.JobCopy, to: (*Spec).dstImage, chain: (*Spec).dstChain, at: onDst}
	toSrc = way{kind: hv.JobActiveCommit, to: (*Spec).srcImage, chain: (*Spec).srcChain, at: onSrc}
)

// stepMirror folds the overlay into dst while the guest runs: a shallow copy
// with synchronous writes, so that it converges under any load. It ends when
// the job is ready.
func (m *machine) stepMirror() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		begin := func() error {
			return m.hv.BlockCopy(ctx, s.InstanceID, s.Target, s.dstImage(),
				hv.CopyOptions{Shallow: true, Synchronous: true})
		}
		_, err := m.runJob(ctx, s, toDst, begin, 0)
		return err
	}
	return step("mirror", do, m.abortJob(toDst), m.observeJob(toDst))
}

// slowNote is what was done about a guest that writes faster than the commit.
type slowNote struct {
	// Throttled: its writes are limited, and whoever ends the step lifts that.
	Throttled bool `json:"throttled"`
	// Pause: not even that was enough for the job that runs, so that the pause
	// to come has to end it.
	Pause bool `json:"pause"`
}

// throttleBps is what a guest may still write to a disk whose commit does not
// catch up. Any commit to a disk worth the name is faster.
const throttleBps = 1 << 20

// stepCommit folds the overlay back into src while the guest runs. QEMU has no
// synchronous mode for that, so a guest that writes faster than the job is
// first slowed down and then, by the next step, paused: it always ends. As long
// as the job gets on, however much is left to do, the guest is left alone.
func (m *machine) stepCommit() op.Step {
	const name = "commit"
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		begin := func() error { return m.hv.CommitActive(ctx, s.InstanceID, s.Target, 0) }
		var note slowNote
		if _, err := r.Noted(name, &note); err != nil {
			return err
		}
		if note.Pause { // it was said of a job that is gone
			if err := r.Note(ctx, slowNote{Throttled: note.Throttled}); err != nil {
				return err
			}
		}
		if !note.Throttled {
			ready, err := m.runJob(ctx, s, toSrc, begin, commitBound)
			if err != nil || ready {
				return err
			}
			if err := r.Note(ctx, slowNote{Throttled: true}); err != nil {
				return err
			}
		}
		err := m.hv.SetWriteLimit(ctx, s.InstanceID, s.Target, throttleBps)
		if err != nil && !errors.Is(err, hv.ErrUnsupported) {
			return m.hvError(err)
		}
		ready, err := m.runJob(ctx, s, toSrc, begin, commitBound)
		if err != nil || ready {
			return err
		}
		return r.Note(ctx, slowNote{Throttled: true, Pause: true})
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		if err := m.liftThrottle(ctx, r, s); err != nil {
			return err
		}
		return m.abortJob(toSrc)(ctx, r, s)
	}
	observe := func(ctx context.Context, r *op.Run, s *Spec) (op.Observation, error) {
		var note slowNote
		if _, err := r.Noted(name, &note); err != nil {
			return op.Unknown, err
		}
		v, err := m.lookAt(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		mirror := v.ours(toSrc, s)
		return done(mirror != nil && (mirror.Ready || note.Pause)), nil
	}
	return step(name, do, undo, observe)
}

// liftThrottle lets the guest write at full speed again if stepCommit slowed
// it down.
func (m *machine) liftThrottle(ctx context.Context, r *op.Run, s *Spec) error {
	var note slowNote
	if _, err := r.Noted("commit", &note); err != nil || !note.Throttled {
		return err
	}
	v, err := m.lookAt(ctx, s)
	if err != nil || !v.active {
		return err
	}
	return m.hvError(m.hv.SetWriteLimit(ctx, s.InstanceID, s.Target, 0))
}

// runJob begins the way's block job if it does not run yet and waits until it
// is ready, or until it has got nowhere for as long as patience (0: for ever).
func (m *machine) runJob(ctx context.Context, s *Spec, w way, begin func() error, patience time.Duration) (ready bool, err error) {
	least, since := int64(math.MaxInt64), m.now()
	begun := false
	for {
		v, err := m.lookAt(ctx, s)
		if err != nil {
			return false, err
		}
		if !v.active {
			return false, guestIsOff(s)
		}
		mirror, err := v.mirrorTo(w.kind, w.to(s))
		if err != nil {
			return false, err
		}
		switch {
		case mirror != nil && mirror.Ready:
			return true, nil
		case mirror == nil && begun:
			return false, foldEnded(s, w.to(s))
		case mirror == nil && v.live != onOverlay:
			// Without an overlay QEMU would quietly do a full copy and zero dst.
			return false, changed(s, v)
		case mirror == nil && v.dom.Snapshots+v.dom.Checkpoints > 0:
			return false, marked(s, v.dom)
		case mirror == nil:
			if err := begin(); err != nil {
				return false, m.guestError(ctx, s, err)
			}
			begun = true
			continue
		}
		if job := m.reportJob(ctx, s); job != nil && job.End-job.Current < least {
			least, since = job.End-job.Current, m.now()
		}
		if patience > 0 && m.now().Sub(since) >= patience {
			return false, nil
		}
		if err := sleep(ctx, jobPoll); err != nil {
			return false, err
		}
	}
}

// reportJob shows the job's progress and returns it; nil if it is not known.
func (m *machine) reportJob(ctx context.Context, s *Spec) *hv.Job {
	job, err := m.hv.Job(ctx, s.InstanceID, s.Target)
	if err != nil || job == nil {
		return nil
	}
	m.board.set(s.MigrationID, Progress{Phase: "fold", BytesTotal: job.End, BytesDone: job.Current})
	return job
}

// abortJob ends the way's job and keeps the guest on the overlay. Another job,
// or another image on top, is not ours to touch: ours is not there then.
func (m *machine) abortJob(w way) stepFunc {
	return func(ctx context.Context, _ *op.Run, s *Spec) error {
		m.board.clear(s.MigrationID)
		v, err := m.lookAt(ctx, s)
		if err != nil || !v.active {
			return err // a job dies with its process
		}
		if v.ours(w, s) == nil {
			if v.live == w.at {
				return op.UnknownOutcome(changed(s, v))
			}
			return nil
		}
		if err := m.hv.AbortJob(ctx, s.InstanceID, s.Target); err != nil {
			return m.hvError(err)
		}
		return op.Retry(jobPoll, api.Errorf(api.CodeInstanceBusy, "the block job on %s has not ended yet", s.Target))
	}
}

// observeJob says whether the way's job is ready.
func (m *machine) observeJob(w way) observeFunc {
	return func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		v, err := m.lookAt(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		// If not, Do finds out why, and has the op planned anew or refuses.
		mirror := v.ours(w, s)
		return done(mirror != nil && mirror.Ready), nil
	}
}

// stepAbortMirror clears away a copy job that a complete which was cut off has
// left, before cancel begins its own.
func (m *machine) stepAbortMirror() op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		v, err := m.lookAt(ctx, s)
		if err != nil {
			return err
		}
		if v.active && v.mirror == nil && v.live != onOverlay {
			return changed(s, v)
		}
		if _, err := v.mirrorTo(hv.JobCopy, s.dstImage()); err != nil && v.ours(toSrc, s) == nil {
			return err
		}
		return m.abortJob(toDst)(ctx, r, s)
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		v, err := m.lookAt(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		// An active commit is cancel's own, from before a crash.
		return done(!v.active || (v.live == onOverlay && (v.mirror == nil || v.ours(toSrc, s) != nil))), nil
	}
	return step("abort_mirror", do, nil, observe)
}
