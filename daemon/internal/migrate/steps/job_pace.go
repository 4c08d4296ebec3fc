// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

// jobPacing reports whether a block job gives way to its guest.
type jobPacing int

const (
	// givesWay as far as the operator's pace says.
	givesWay jobPacing = iota
	// asFastAsItCan is for a guest that is slowed down so that the job ends.
	asFastAsItCan
)

// pacing says what is done to the guest for the job, zero if nothing is.
func (p jobPacing) pacing() Pacing {
	if p == givesWay {
		return Pacing{}
	}
	return pacingIf(doingThrottlesGuest, fmt.Sprintf("the guest may write %s per second until the switch is over: the fold did not catch up with it", api.Bytes(ThrottleBytesPerSecond)))
}

// PacedFoldBound is how long a fold may take for the sake of the guest: it is not made slower than
// what it needs to be over by then.
const PacedFoldBound = 10 * time.Minute

// jobPace is the pacer of a job, and what it measures with.
type jobPace struct {
	*copy.JobPacer
	stats       func() (copy.GuestLatency, bool)
	paced       jobPacing
	synchronous bool
}

// pacedJob makes the pacer of a job that is begun or taken up. Nothing of it is stored: whoever
// takes a job up paces it from then on, whatever limit it has.
func (e *Env) pacedJob(ctx context.Context, s *Spec, to direction, paced jobPacing) *jobPace {
	p := &jobPace{stats: guestLatency(ctx, e.guestStats(s)), paced: paced, synchronous: !inBackground(s, to)}
	bound := PacedFoldBound
	if s.Method == MethodMirror {
		bound = 0
	}
	guest, ok := p.stats()
	p.JobPacer = copy.NewJobPacer(e.now(), guest, ok, p.keepShare(e.CopyOptions(s)), bound)
	return p
}

func (p *jobPace) keepShare(opts api.CopyOptions) float64 {
	if p.paced == asFastAsItCan {
		return keepShare(api.PaceOff)
	}
	return keepShare(opts.Pace)
}

// blockCopyOptions are those of the copy that makes dst equal to the disk. Only a mirror
// has the operator's bandwidth: a fold is short, and the guest waits for its end.
func (e *Env) blockCopyOptions(s *Spec) hv.BlockCopyOptions {
	opts := hv.BlockCopyOptions{Shallow: s.Method == MethodOverlay, Synchronous: true}
	if s.KeepsBase() {
		// libvirt puts dst over its base images in the pivot. Until then a write of less than a
		// cluster would hide the rest of it, so that only the job may write: whole clusters of an
		// image that we have made.
		opts.Backing, opts.Synchronous, opts.GranularityBytes = s.DstChain()[1:], false, image.ClusterBytes
	}
	if s.Method == MethodMirror {
		opts.BandwidthBytesPerSecond = e.CopyOptions(s).BandwidthBytesPerSecond
	}
	return opts
}

// paceJob gives a job the limit that its guest bears, and at most the operator's.
func (e *Env) paceJob(ctx context.Context, s *Spec, job *hv.Job, p *jobPace) {
	if job == nil {
		return
	}
	limit := e.blockCopyOptions(s).BandwidthBytesPerSecond
	if job.Tracking { // before that it copies nothing
		p.SetKeepShare(p.keepShare(e.CopyOptions(s)))
		guest, ok := p.stats()
		bears := p.Look(e.now(), guest, ok, copy.JobProgress{Done: job.Current, Left: job.End - job.Current, Synchronous: p.synchronous})
		limit = min(cmp.Or(limit, bears), cmp.Or(bears, limit))
	}
	if err := e.limitJob(ctx, s, job, limit); err != nil {
		// It may have ended, which the next look tells; if not, it is tried again.
		e.log.Debug("cannot change the bandwidth of a block job", "migration", s.MigrationID, "err", err)
	}
}

// unpaceJob leaves a job no limit but the operator's.
func (e *Env) unpaceJob(ctx context.Context, s *Spec) error {
	job, err := e.hv.Job(ctx, s.InstanceID, s.Target)
	if err != nil || job == nil {
		return err
	}
	return e.limitJob(ctx, s, job, e.blockCopyOptions(s).BandwidthBytesPerSecond)
}

// limitJob sets the speed of a job if it has another.
func (e *Env) limitJob(ctx context.Context, s *Spec, job *hv.Job, bytesPerSecond int64) error {
	if job.BandwidthBytesPerSecond == bytesPerSecond {
		return nil
	}
	return e.hv.SetJobBandwidth(ctx, s.InstanceID, s.Target, bytesPerSecond)
}
