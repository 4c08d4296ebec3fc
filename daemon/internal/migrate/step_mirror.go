// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
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

// slowNote says that the guest's writes are throttled, so that a restarted
// daemon lifts it.
type slowNote struct {
	Throttled bool `json:"throttled"`
}

// throttleBps is what a guest may still write to a disk whose commit does not
// catch up. Any commit to a disk worth the name is faster.
const throttleBps = 1 << 20

// stepCommit folds the overlay back into src while the guest runs. QEMU has no
// synchronous mode for that, so a guest that writes faster than the job is
// first slowed down and then, by the next step, paused: it always ends.
func (m *machine) stepCommit() op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		begin := func() error { return m.hv.CommitActive(ctx, s.InstanceID, s.Target, 0) }
		ready, err := m.runJob(ctx, s, toSrc, begin, commitBound)
		if err != nil || ready {
			return err
		}
		if err := r.Note(ctx, slowNote{Throttled: true}); err != nil {
			return err
		}
		if err := m.hv.SetWriteLimit(ctx, s.InstanceID, s.Target, throttleBps); err != nil {
			return m.hvError(err)
		}
		_, err = m.runJob(ctx, s, toSrc, begin, commitBound)
		return err
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		if err := m.liftThrottle(ctx, r, s); err != nil {
			return err
		}
		return m.abortJob(toSrc)(ctx, r, s)
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		v, err := m.lookAt(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		mirror, err := v.mirrorTo(hv.JobActiveCommit, s.srcImage())
		if err != nil {
			return op.Unknown, op.UnknownOutcome(err)
		}
		// Not ready is enough here: the pause that comes next lets it end.
		return done(v.active && mirror != nil), nil
	}
	return step("commit", do, undo, observe)
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
// is ready, or until the bound (0 is none) is over.
func (m *machine) runJob(ctx context.Context, s *Spec, w way, begin func() error, bound time.Duration) (bool, error) {
	until := m.now().Add(bound)
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
		case mirror == nil:
			if err := begin(); err != nil {
				return false, m.hvError(err)
			}
			begun = true
			continue
		}
		m.reportJob(ctx, s)
		if bound > 0 && !m.now().Before(until) {
			return false, nil
		}
		if err := sleep(ctx, jobPoll); err != nil {
			return false, err
		}
	}
}

// reportJob shows the job's progress; it decides nothing.
func (m *machine) reportJob(ctx context.Context, s *Spec) {
	if job, err := m.hv.Job(ctx, s.InstanceID, s.Target); err == nil && job != nil {
		m.board.set(s.MigrationID, Progress{Phase: "fold", BytesTotal: job.End, BytesDone: job.Current})
	}
}

// abortJob ends the way's job and keeps the guest on the overlay.
func (m *machine) abortJob(w way) stepFunc {
	return func(ctx context.Context, _ *op.Run, s *Spec) error {
		m.board.clear(s.MigrationID)
		v, err := m.lookAt(ctx, s)
		if err != nil || !v.active {
			return err // a job dies with its process
		}
		mirror, err := v.mirrorTo(w.kind, w.to(s))
		if err != nil {
			return op.UnknownOutcome(err)
		}
		if mirror == nil {
			if v.live != onOverlay {
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
		if !v.active {
			return op.NotDone, nil // Do finds out and has the op planned anew
		}
		mirror, err := v.mirrorTo(w.kind, w.to(s))
		if err != nil {
			return op.Unknown, op.UnknownOutcome(err)
		}
		return done(mirror != nil && mirror.Ready), nil
	}
}

// stepAbortMirror clears away a copy job that a complete which was cut off has
// left, before cancel begins its own.
func (m *machine) stepAbortMirror() op.Step {
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		v, err := m.lookAt(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		mirror, err := v.mirrorTo(hv.JobCopy, s.dstImage())
		if err != nil {
			// An active commit is cancel's own, from before a crash.
			return done(v.mirror != nil && v.mirror.Job == hv.JobActiveCommit), nil
		}
		return done(mirror == nil), nil
	}
	return step("abort_mirror", m.abortJob(toDst), nil, observe)
}
