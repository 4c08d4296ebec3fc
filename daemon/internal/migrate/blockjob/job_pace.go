// SPDX-License-Identifier: Apache-2.0

package blockjob

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

type jobPacing int

const (
	givesWay jobPacing = iota
	// asFastAsItCan: the guest is limited so that the job can end.
	asFastAsItCan
)

func (p jobPacing) pacing() move.Pacing {
	if p == givesWay {
		return move.Pacing{}
	}
	return move.PacingIf(move.DoingThrottlesGuest, fmt.Sprintf("the guest may write %s per second until the switch is over: the fold did not catch up with it", humanize.Bytes(ThrottleBytesPerSecond)))
}

// PacedFoldBound is how long pacing may make a fold take.
const PacedFoldBound = 10 * time.Minute

type jobPace struct {
	*copy.JobPacer
	stats       func() (copy.GuestLatency, bool)
	paced       jobPacing
	synchronous bool
}

// pacedJob returns the pacer of a job that is begun or adopted. The pace is not stored: the op
// that adopts a job paces it, whatever limit the job has.
func (e *Env) pacedJob(ctx context.Context, s *move.Spec, to move.Direction, paced jobPacing) *jobPace {
	p := &jobPace{stats: transfer.GuestLatency(ctx, e.transfer.GuestStats(s)), paced: paced, synchronous: !move.InBackground(s, to)}
	bound := PacedFoldBound
	if s.Method == move.MethodMirror {
		bound = 0
	}
	guest, ok := p.stats()
	p.JobPacer = copy.NewJobPacer(e.now(), guest, ok, p.keepShare(e.move.CopyOptions(s)), bound)
	return p
}

func (p *jobPace) keepShare(opts api.CopyOptions) float64 {
	if p.paced == asFastAsItCan {
		return transfer.KeepShare(api.PaceOff)
	}
	return transfer.KeepShare(opts.Pace)
}

// blockCopyOptions returns the options of the copy job into dst. Only a mirror gets the operator's
// bandwidth: a fold is short, and the guest waits for it.
func (e *Env) blockCopyOptions(s *move.Spec) hv.BlockCopyOptions {
	opts := hv.BlockCopyOptions{Shallow: s.Method == move.MethodOverlay, Synchronous: true}
	if base := s.DstChain()[1:]; len(base) > 0 {
		// libvirt puts dst over its base images only in the pivot. Until then a write of less than
		// a cluster would hide the rest of the cluster. So only the job may write, and only whole
		// clusters.
		opts.Backing, opts.Synchronous, opts.GranularityBytes = base, false, image.ClusterBytes
	}
	if s.Method == move.MethodMirror {
		opts.BandwidthBytesPerSecond = e.move.CopyOptions(s).BandwidthBytesPerSecond
	}
	return opts
}

func (e *Env) paceJob(ctx context.Context, s *move.Spec, job *hv.Job, p *jobPace) {
	if job == nil {
		return
	}
	limit := e.blockCopyOptions(s).BandwidthBytesPerSecond
	if job.Tracking { // before that the job copies nothing
		p.SetKeepShare(p.keepShare(e.move.CopyOptions(s)))
		guest, ok := p.stats()
		bears := p.Look(e.now(), guest, ok, copy.JobProgress{Done: job.Current, Left: job.End - job.Current, Synchronous: p.synchronous})
		limit = min(cmp.Or(limit, bears), cmp.Or(bears, limit))
	}
	if err := e.limitJob(ctx, s, job, limit); err != nil {
		// The job may have ended, which the next look shows.
		e.log.Debug("cannot change the bandwidth of a block job", "migration", s.MigrationID, "err", err)
	}
}

func (e *Env) unpaceJob(ctx context.Context, s *move.Spec) error {
	job, err := e.jobs.Job(ctx, s.InstanceID, s.Target)
	if err != nil || job == nil {
		return err
	}
	return e.limitJob(ctx, s, job, e.blockCopyOptions(s).BandwidthBytesPerSecond)
}

func (e *Env) limitJob(ctx context.Context, s *move.Spec, job *hv.Job, bytesPerSecond int64) error {
	if job.BandwidthBytesPerSecond == bytesPerSecond {
		return nil
	}
	return e.jobs.SetJobBandwidth(ctx, s.InstanceID, s.Target, bytesPerSecond)
}
