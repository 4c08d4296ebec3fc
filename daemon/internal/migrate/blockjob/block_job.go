// SPDX-License-Identifier: Apache-2.0

package blockjob

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/retry"
)

// runJob begins the block job into dst or src unless it runs, and waits until the job is ready, or
// has made no progress for stallTimeout (0: no limit). paced decides whether the job yields to its
// guest. A ready job has only the operator's limit.
func (e *Env) runJob(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction, stallTimeout time.Duration, paced jobPacing) (ready bool, err error) {
	pacer := e.pacedJob(ctx, s, to, paced)
	defer func() { e.countPaced(pacer.Paced()) }()
	least, since := int64(math.MaxInt64), e.now()
	asked := false
	begun, pace := 0, meter{} // the guest's run when the job began
	var stuck standstill
	var dst look.Silence
	waits := "" // why the guest has to wait
	for {
		if err := e.move.StillOurs(ctx, s); err != nil {
			return false, err
		}
		disk, err := e.look.ReadActive(ctx, s)
		if err != nil {
			return false, err
		}
		mirror, err := disk.MirrorTo(to, s)
		if err != nil {
			return false, err
		}
		ready, err := e.caughtUp(ctx, s, to, mirror)
		if err != nil {
			return false, err
		}
		if ready && to.End == move.OnDst { // otherwise QEMU would hang in the guest's suspend
			ready = waits == "" && e.look.DstAnswersQuickly(ctx, s) == nil
		}
		switch {
		case begun != 0 && begun != disk.Dom.Run:
			// The job began in a QEMU of unknown version, and may lack writes (MustHold). The undo
			// of a commit ends such a job, and the next op ends a copy.
			return false, look.GuestRestarted(s)
		case ready:
			if err := e.unpaceJob(ctx, s); err != nil {
				// A limit has no effect on a ready job.
				e.log.Debug("cannot lift the limit of a block job that is ready", "migration", s.MigrationID, "err", err)
			}
			return true, look.MayName(disk, s, to) // otherwise the guest would be paused in vain
		case mirror == nil && !asked:
			// Before a job begins, or counts as ended: a job may run that libvirt does not know.
			if _, err := e.look.ConfirmDisk(ctx, s); err != nil {
				return false, err
			}
			asked = true
			continue
		case mirror == nil && begun != 0:
			return false, e.look.JobFailed(ctx, s, to.Image(s), begun)
		case mirror == nil:
			if err := MayBegin(disk, s); err != nil {
				return false, err
			}
			if err := e.look.MayBeginUnheld(ctx, s); err != nil {
				return false, err
			}
			if err := e.beginUnheld(ctx, r, s, to); err != nil {
				err = e.look.GuestError(ctx, s, err)
				if to.End == move.OnSrc {
					err = cmp.Or(e.look.UnknownCommit(ctx, s), err)
				}
				return false, err
			}
			begun, asked = disk.Dom.Run, false
			continue
		}
		job := e.reportJob(ctx, s, &pace, cmp.Or(move.PacingIf(move.DoingWaitsForDst, waits), paced.pacing(), stuck.pacing(e.now()), move.PacingOf(pacer.State())))
		// The remaining bytes are unknown until the job has scanned the disk.
		if job != nil && job.Tracking && job.End-job.Current < least {
			least, since = job.End-job.Current, e.now()
		}
		idle := stuck.since(e.now(), job)
		if idle == 0 {
			dst = look.Silence{} // dst answers the job
		}
		if waits = ""; to.End == move.OnDst && (idle >= look.SilentAfter || mirror.Ready) {
			if waits, err = dst.Heard(ctx, e.look, s); err != nil {
				return false, err
			}
		}
		e.paceJob(ctx, s, job, pacer)
		if stallTimeout > 0 && e.now().Sub(since) >= stallTimeout {
			return false, e.move.HVError(e.unpaceJob(ctx, s))
		}
		if err := retry.Sleep(ctx, pacer.Tick(e.now())); err != nil {
			return false, err
		}
	}
}

// behindBytes is how much a background job may still have to copy when the guest is paused: any
// disk writes as much well within DrainBound.
const behindBytes = 16 << 20

// caughtUp reports whether the guest may be paused for the end of the job. A background job may
// fall behind its guest again after it was ready.
func (e *Env) caughtUp(ctx context.Context, s *move.Spec, to move.Direction, mirror *hv.Mirror) (bool, error) {
	if mirror == nil || !mirror.Ready || !move.InBackground(s, to) {
		return mirror != nil && mirror.Ready, nil
	}
	job, err := e.jobs.Job(ctx, s.InstanceID, s.Target)
	if err != nil {
		return false, e.look.GuestError(ctx, s, err)
	}
	return job != nil && job.End-job.Current <= behindBytes, nil
}

type standstill struct {
	at   time.Time
	seen hv.Job
}

// since returns how long the job has made no progress. job is nil if the job's state is unknown.
func (s *standstill) since(now time.Time, job *hv.Job) time.Duration {
	switch {
	case job == nil && s.at.IsZero():
		return 0
	case job != nil && (s.at.IsZero() || job.Current != s.seen.Current || job.End != s.seen.End):
		s.at, s.seen = now, *job
	}
	return now.Sub(s.at)
}

func (s *standstill) pacing(now time.Time) move.Pacing {
	if s.at.IsZero() || now.Sub(s.at) < look.SilentAfter {
		return move.Pacing{}
	}
	return move.PacingIf(move.DoingStandsStill, move.NoProgress(now.Sub(s.at)))
}

// reportJob shows the job's progress and returns the job; nil if it is unknown.
func (e *Env) reportJob(ctx context.Context, s *move.Spec, pace *meter, pacing move.Pacing) *hv.Job {
	job, err := e.jobs.Job(ctx, s.InstanceID, s.Target)
	if err != nil || job == nil {
		return nil
	}
	e.progress.Set(s.MigrationID, move.Progress{
		Phase: move.JobPhase(s), BytesTotal: job.End, BytesDone: job.Current, RateBytesPerSecond: pace.rate(e.now(), job.Current),
		Pacing: pacing,
	})
	return job
}

// MayBegin refuses a job on a disk with an unexpected chain, or of a domain that has snapshots.
func MayBegin(d *move.DiskState, s *move.Spec) error {
	switch {
	case !d.Active:
		return look.GuestIsOff(s)
	case d.Live != s.Before():
		// Without an overlay QEMU would make a full copy, and write zeros to dst.
		return look.ChainChanged(s, d)
	case d.Dom.Snapshots+d.Dom.Checkpoints > 0:
		return look.SnapshotsLost(s, d.Dom)
	}
	return nil
}

type meter struct {
	at    time.Time
	done  int64
	speed float64
}

const meterWindow = 3 * time.Second

func (p *meter) rate(now time.Time, done int64) int64 {
	elapsed := now.Sub(p.at)
	switch {
	case p.at.IsZero() || elapsed < 0:
		p.at, p.done = now, done
	case elapsed > 0:
		speed := float64(max(0, done-p.done)) / elapsed.Seconds()
		if p.speed == 0 {
			p.speed = speed
		}
		p.speed += min(1, float64(elapsed)/float64(meterWindow)) * (speed - p.speed)
		p.at, p.done = now, done
	}
	return int64(p.speed)
}

// abortCommit ends the commit job of a cancel. The job is not synchronous, so the guest need not
// be paused. abortCommit changes nothing if the disk has another job, or another image on top:
// another program may have pivoted our job to src, which the next cancel finds
// (CommittedByOthers).
func (e *Env) abortCommit(ctx context.Context, s *move.Spec) error {
	e.progress.Clear(s.MigrationID)
	disk, err := e.look.ConfirmDisk(ctx, s)
	if err != nil || !disk.Active {
		return err // a job ends with its process
	}
	if disk.Ours(move.ToSrc, s) == nil {
		return nil
	}
	if err := e.jobs.AbortJob(ctx, s.InstanceID, s.Target); err != nil {
		return e.move.HVError(err)
	}
	return move.NotEnded(s)
}

func (e *Env) observeJob(to move.Direction) op.ObserveFunc[move.Spec] {
	return func(ctx context.Context, _ *op.Run, s *move.Spec) (op.Observation, error) {
		disk, err := e.look.ConfirmDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		// If a job is not ready, Do finds the reason.
		ready, err := e.caughtUp(ctx, s, to, disk.Ours(to, s))
		return op.DoneIf(ready && look.MayName(disk, s, to) == nil), err
	}
}
