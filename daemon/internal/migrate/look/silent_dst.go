// SPDX-License-Identifier: Apache-2.0

package look

import (
	"cmp"
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/internal/shell"
)

// These functions handle a dst with a server that does not answer. While a job writes to both
// images, each write of the guest waits for dst. A suspend waits for all writes. The beginning of
// a job waits for the server, and QEMU itself blocks. So dst is asked before each of these, and
// while a job makes no progress. If dst does not answer, its connections are ended: the job fails,
// and the guest continues on its image (DESIGN.md, section 16). This works only for an NBD server:
// QEMU waits for files, devices and clusters.

const (
	// SilentAfter is how long a job into dst may make no progress before dst is asked.
	SilentAfter = 5 * time.Second
	// silentBound is how long dst may not answer while a job writes there and its guest runs.
	// Storage that fails over is back sooner.
	silentBound = 2 * time.Minute
	// quickAnswer replaces silentBound while the guest or a fence waits.
	quickAnswer = 3 * time.Second
	// leaveBound is how long a job may take to end without connections.
	leaveBound = 5 * time.Second
	leavePoll  = 20 * time.Millisecond
)

// DstAnswers returns an error if the NBD server of dst does not answer. It does not change the
// block job.
func (e *Env) DstAnswers(ctx context.Context, s *move.Spec) error {
	return dstIsSilent(ctx, s, e.images.Answers(ctx, s.Dst.Path))
}

// DstStillAnswers is called right before the guest is suspended. If dst does not answer, the op is
// planned again, and its step for the block job waits for dst.
func (e *Env) DstStillAnswers(ctx context.Context, s *move.Spec) error {
	if err := e.DstAnswersQuickly(ctx, s); err != nil {
		return &move.WorldChangedError{What: err.Error()}
	}
	return nil
}

// DstAnswersQuickly is DstAnswers with a short timeout, because a paused guest, a fence or the
// daemon's stop waits.
func (e *Env) DstAnswersQuickly(ctx context.Context, s *move.Spec) error {
	asking, cancel := context.WithTimeout(ctx, quickAnswer)
	defer cancel()
	return dstIsSilent(ctx, s, e.images.Answers(asking, s.Dst.Path))
}

// LeaveSilentDstInPause returns an error if dst does not answer, after it has ended our job into
// dst. The guest is suspended: no write is under way that could make QEMU die.
func (e *Env) LeaveSilentDstInPause(ctx context.Context, s *move.Spec) error {
	silent := e.DstAnswersQuickly(ctx, s)
	if silent == nil || ctx.Err() != nil {
		return silent
	}
	return cmp.Or(e.leaveDst(ctx, s), silent)
}

// LeaveSilentDst ends our block job at once if dst does not answer, since the operator has
// requested a cancel. If QEMU dies of that, the guest's flushed writes are in the overlay, as
// after any crash. While the job makes progress dst counts as answering, even if it answers no
// other client.
func (e *Env) LeaveSilentDst(ctx context.Context, s *move.Spec) error {
	if !s.DstKind().Severable {
		return nil
	}
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil || disk.Ours(move.ToDst, s) == nil {
		return err
	}
	before, err := e.jobs.Job(ctx, s.InstanceID, s.Target)
	if err != nil {
		return e.GuestError(ctx, s, err)
	}
	for range 2 {
		if e.images.Answers(ctx, s.Dst.Path) == nil {
			return nil
		}
	}
	after, err := e.jobs.Job(ctx, s.InstanceID, s.Target)
	if err != nil {
		return e.GuestError(ctx, s, err)
	}
	if before == nil || after == nil || before.Current != after.Current || before.End != after.End {
		return nil
	}
	return e.leaveDst(ctx, s)
}

func dstIsSilent(ctx context.Context, s *move.Spec, silent error) error {
	switch {
	case silent == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return api.Errorf(api.CodeIOError, "%v. Mend the server and complete again, or take the move of volume %s back, by which its guest does not wait for that server any more",
		silent, s.VolumeName)
}

// Silence measures how long dst has not answered while our block job into it makes no progress.
type Silence struct {
	asked, since time.Time
}

// Heard checks at most once per SilentAfter whether dst answers. After silentBound without an
// answer it ends our job, unless the guest's QEMU would die of that, and returns an error. The
// result waits describes why the guest waits, or is "".
func (w *Silence) Heard(ctx context.Context, e *Env, s *move.Spec) (waits string, err error) {
	if now := e.now(); now.Sub(w.asked) >= SilentAfter {
		silent := e.images.Answers(ctx, s.Dst.Path)
		w.asked = e.now()
		switch {
		case silent == nil:
			w.since = time.Time{} // dst is only slow
		case w.since.IsZero():
			w.since = now
		case now.Sub(w.since) >= silentBound:
			version, err := e.processes.QEMUVersion(ctx, s.InstanceID)
			if err != nil {
				return "", e.GuestError(ctx, s, err)
			}
			if !hv.JobEndKillsGuest(version) {
				return "", cmp.Or(e.leaveDst(ctx, s), dstIsSilent(ctx, s, silent))
			}
		}
	}
	if w.since.IsZero() {
		return "", nil
	}
	return "the guest waits for " + s.Dst.Path + ", which does not answer: mend the server, or cancel the migration", nil
}

// leaveDst ends the connections of the guest's process to dst, and waits until the migration's job
// has ended because of that. It does nothing if the guest is or may be on dst.
func (e *Env) leaveDst(ctx context.Context, s *move.Spec) error {
	disk, err := e.ConfirmDisk(ctx, s)
	if err != nil || !disk.Active || disk.Live == move.OnDst {
		return err
	}
	if job := disk.Ours(move.ToDst, s); job == nil || job.Ending {
		return nil
	}
	e.log.Warn("the server of dst does not answer, and a guest would wait for it: its connections are ended", "migration", s.MigrationID, "instance", s.InstanceName, "dst", s.Dst.Path)
	if err := e.jobs.EndConnections(ctx, s.InstanceID, s.Dst.Path); err != nil {
		return e.GuestError(ctx, s, err)
	}
	gone, err := retry.Poll(ctx, leavePoll, leaveBound, func() (bool, error) {
		disk, err := e.move.ReadDisk(ctx, s)
		return err == nil && (!disk.Active || disk.Ours(move.ToDst, s) == nil), err
	})
	if err != nil || gone {
		return err
	}
	how := "end its guest (" + shell.Line("virsh", "destroy", "--", s.InstanceName) + "), whose overlay has what it has flushed"
	if !s.DstKind().Remote {
		how = "end the process of that server, which is on this host, and the guest goes on where it was"
	}
	return api.Errorf(api.CodeIOError, "%s does not answer, and QEMU has not ended its job there though its connection was ended, so the guest of instance %s waits for it: %s",
		s.Dst.Path, s.InstanceName, how)
}
