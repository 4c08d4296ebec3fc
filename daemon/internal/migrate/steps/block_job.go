// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
	"github.com/volferry/volferry/internal/retry"
)

// runJob begins the block job of a direction unless it runs, and waits until the job is ready, or
// has made no progress for stallTimeout (0: without limit). The job yields to its guest according
// to paced. It has only the operator's limit when runJob returns without an error.
func (e *Env) runJob(ctx context.Context, r *op.Run, s *Spec, to direction, stallTimeout time.Duration, paced jobPacing) (ready bool, err error) {
	pacer := e.pacedJob(ctx, s, to, paced)
	defer func() { e.countPaced(pacer.Paced()) }()
	least, since := int64(math.MaxInt64), e.now()
	asked := false            // the second witness
	begun, pace := 0, meter{} // the guest's run when the job was begun
	var stuck standstill
	var dst silence
	waits := "" // why the guest has to wait, if it has to
	for {
		if err := e.StillOurs(ctx, s); err != nil {
			return false, err
		}
		disk, err := e.readActive(ctx, s)
		if err != nil {
			return false, err
		}
		mirror, err := disk.mirrorTo(to, s)
		if err != nil {
			return false, err
		}
		ready, err := e.caughtUp(ctx, s, to, mirror)
		if err != nil {
			return false, err
		}
		if ready && to.end == OnDst { // otherwise QEMU would hang in the suspend of the guest
			ready = waits == "" && e.dstAnswersQuickly(ctx, s) == nil
		}
		switch {
		case ready:
			if err := e.unpaceJob(ctx, s); err != nil {
				// A ready job has no limit, whatever value is set.
				e.log.Debug("cannot lift the limit of a block job that is ready", "migration", s.MigrationID, "err", err)
			}
			return true, disk.mayName(s, to) // otherwise the guest would be paused in vain
		case mirror == nil && begun != 0 && begun != disk.dom.Run:
			return false, guestRestarted(s)
		case mirror == nil && !asked:
			// Before the job is begun, or counts as ended: a job may run that libvirt does not
			// know.
			if _, err := e.confirmDisk(ctx, s); err != nil {
				return false, err
			}
			asked = true
			continue
		case mirror == nil && begun != 0:
			return false, e.jobFailed(ctx, s, to.image(s), begun)
		case mirror == nil:
			if err := disk.mayBegin(s); err != nil {
				return false, err
			}
			if err := e.mayBeginUnheld(ctx, s); err != nil {
				return false, err
			}
			if to.end == OnDst {
				if err := r.Note(ctx, writesNote{Writes: true}); err != nil {
					return false, err
				}
			}
			if err := e.begin(ctx, s, to); err != nil {
				err = e.guestError(ctx, s, err)
				if to.end == OnSrc {
					err = cmp.Or(e.unknownCommit(ctx, s), err)
				}
				return false, err
			}
			begun, asked = disk.dom.Run, false
			continue
		}
		job := e.reportJob(ctx, s, &pace, cmp.Or(pacingIf(doingWaitsForDst, waits), paced.pacing(), stuck.pacing(e.now()), pacingOf(pacer.State())))
		// The remaining bytes are unknown until the job has scanned the disk.
		if job != nil && job.Tracking && job.End-job.Current < least {
			least, since = job.End-job.Current, e.now()
		}
		idle := stuck.since(e.now(), job)
		if idle == 0 {
			dst = silence{} // dst answers the job, even if it answers no other client
		}
		if waits = ""; to.end == OnDst && (idle >= silentAfter || mirror.Ready) {
			if waits, err = dst.heard(ctx, e, s); err != nil {
				return false, err
			}
		}
		e.paceJob(ctx, s, job, pacer)
		if stallTimeout > 0 && e.now().Sub(since) >= stallTimeout {
			// With the guest paused the job must run at full speed.
			return false, e.hvError(e.unpaceJob(ctx, s))
		}
		if err := retry.Sleep(ctx, pacer.Tick(e.now())); err != nil {
			return false, err
		}
	}
}

// behindBytes is how many bytes a background job may have left when the guest is paused: any disk
// writes that much well within DrainBound.
const behindBytes = 16 << 20

// caughtUp reports whether the guest may be paused for the end of a job. A background job that was
// ready once may be far behind its guest again.
func (e *Env) caughtUp(ctx context.Context, s *Spec, to direction, mirror *hv.Mirror) (bool, error) {
	if mirror == nil || !mirror.Ready || !inBackground(s, to) {
		return mirror != nil && mirror.Ready, nil
	}
	job, err := e.hv.Job(ctx, s.InstanceID, s.Target)
	if err != nil {
		return false, e.guestError(ctx, s, err)
	}
	return job != nil && job.End-job.Current <= behindBytes, nil
}

type standstill struct {
	at   time.Time
	seen hv.Job
}

// since takes a sample, which is nil if the state of the job is unknown.
func (s *standstill) since(now time.Time, job *hv.Job) time.Duration {
	switch {
	case job == nil && s.at.IsZero():
		return 0
	case job != nil && (s.at.IsZero() || job.Current != s.seen.Current || job.End != s.seen.End):
		s.at, s.seen = now, *job
	}
	return now.Sub(s.at)
}

// pacing reports that a job makes no progress; it is zero while the job makes progress.
func (s *standstill) pacing(now time.Time) Pacing {
	if s.at.IsZero() || now.Sub(s.at) < silentAfter {
		return Pacing{}
	}
	return pacingIf(doingStandsStill, noProgress(now.Sub(s.at)))
}

// reportJob shows the job's progress and returns the job; nil if it is unknown.
func (e *Env) reportJob(ctx context.Context, s *Spec, pace *meter, pacing Pacing) *hv.Job {
	job, err := e.hv.Job(ctx, s.InstanceID, s.Target)
	if err != nil || job == nil {
		return nil
	}
	e.progress.set(s.MigrationID, Progress{
		Phase: jobPhase(s), BytesTotal: job.End, BytesDone: job.Current, RateBytesPerSecond: pace.rate(e.now(), job.Current),
		Pacing: pacing,
	})
	return job
}

func (e *Env) begin(ctx context.Context, s *Spec, to direction) error {
	var err error
	if to.end == OnSrc {
		err = e.hv.CommitActive(ctx, s.InstanceID, s.Target, 0)
	} else {
		err = e.hv.BlockCopy(ctx, s.InstanceID, s.Target, s.DstImage(), e.blockCopyOptions(s))
	}
	if !errors.Is(err, hv.ErrBusy) {
		return err
	}
	if err := e.awaitBackup(ctx, s); err != nil {
		return err
	}
	return op.Retry(request.BusyDelay, api.Errorf(api.CodeInstanceBusy,
		"disk %s of instance %s is in a job of libvirt that Volferry has not begun: %v; nothing was changed: wait for its end, or end it, and call again",
		s.Target, s.InstanceName, err))
}

// awaitBackup makes the op wait while another program's backup of the disk runs. The guest runs
// meanwhile.
func (e *Env) awaitBackup(ctx context.Context, s *Spec) error {
	if !e.backupAtWork(ctx, s) {
		return nil
	}
	return op.WaitFor(request.WaitBackup, api.Errorf(api.CodeInstanceBusy,
		"the switch of volume %s waits for the end of a backup of disk %s of instance %s; `%s` ends it", s.VolumeName, s.Target, s.InstanceName, api.ShellLine("virsh", "domjobabort", "--", s.InstanceName)))
}

func (e *Env) backupAtWork(ctx context.Context, s *Spec) bool {
	job, err := e.hv.Job(ctx, s.InstanceID, s.Target)
	return err == nil && job != nil && job.Kind == hv.JobBackup
}

// mayBegin refuses a job on a disk with an unexpected chain, or in a domain that has snapshots.
func (d *diskState) mayBegin(s *Spec) error {
	switch {
	case !d.active:
		return guestIsOff(s)
	case d.live != s.Before():
		// Without an overlay QEMU would make a full copy without an error, and zero dst.
		return chainChanged(s, d)
	case d.dom.Snapshots+d.dom.Checkpoints > 0:
		return snapshotsLost(s, d.dom)
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

// abortCommit ends the commit job of a cancel; the guest stays on its image. The job is not
// synchronous, so the guest need not be paused. With another job, or another image on top, it
// changes nothing: another program may have pivoted our job, so that the guest is on src, which the
// next cancel finds (CommittedByOthers).
func (e *Env) abortCommit(ctx context.Context, s *Spec) error {
	e.progress.clear(s.MigrationID)
	disk, err := e.confirmDisk(ctx, s)
	if err != nil || !disk.active {
		return err // a job ends with its process
	}
	if disk.ours(toSrc, s) == nil {
		return nil
	}
	if err := e.hv.AbortJob(ctx, s.InstanceID, s.Target); err != nil {
		return e.hvError(err)
	}
	return notEnded(s)
}

func (e *Env) observeJob(to direction) op.ObserveFunc[Spec] {
	return func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		disk, err := e.confirmDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		// If the job is not ready, Do finds the reason, and refuses or has the op planned again.
		ready, err := e.caughtUp(ctx, s, to, disk.ours(to, s))
		return op.DoneIf(ready && disk.mayName(s, to) == nil), err
	}
}
