// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// callHost makes a call to a host. If the result of the previous call to the host is unknown, it
// only finds out that result.
func (l *Loop) callHost(ctx context.Context, p *workflow.Pause, h workflow.LiveHost, c workflow.LiveCall) error {
	if h.State == workflow.LiveAsked && h.Call != c {
		return l.settleCall(ctx, p, h)
	}
	if _, err := l.cfg.LiveMoves.Ask(ctx, call(p), p.Migration.ID, p.Phase, h.ID, c); err != nil {
		return err
	}
	v, err := l.askHost(ctx, p, h, c)
	switch {
	case err != nil:
		return err
	case v.Failed == nil:
		return l.answer(ctx, p, h, c, v, nil)
	}
	return l.failed(ctx, p, h, c, v)
}

func (l *Loop) askHost(ctx context.Context, p *workflow.Pause, h workflow.LiveHost, c workflow.LiveCall) (hostop.Outcome, error) {
	if c.Verb == workflow.LiveCheck {
		return l.hosts(p).AskNow(ctx, liveRequest(p, h, c))
	}
	return l.hosts(p).AskSurely(ctx, liveRequest(p, h, c))
}

// answer records the result of a call. If stop is not nil, the host gets no more calls until an
// operator acts.
func (l *Loop) answer(ctx context.Context, p *workflow.Pause, h workflow.LiveHost, c workflow.LiveCall, v hostop.Outcome, stop *api.Error) error {
	a := workflow.LiveAnswer{Done: v.Failed == nil, Worked: v.Op.Took(), Error: stop}
	if found := v.Op.Live; a.Done && found != nil {
		a.Dirty, a.Copied, a.TookMS = found.DirtyBytes, found.CopiedBytes, int64(found.Seconds*1000) //nolint:mnd // milliseconds
	}
	if c.Verb == workflow.LiveCheck {
		a.Memory = memories(v.Answer)
	}
	_, err := l.cfg.LiveMoves.Answer(ctx, call(p), p.Migration.ID, h.ID, c, a)
	return err
}

// memories returns the RAM of a host's instances from its answer to a check, in bytes. It ignores
// an unreadable answer, because the values are only for estimates.
func memories(answer []byte) map[string]int64 {
	var said struct {
		LiveHost api.LiveHost `json:"live_host"`
	}
	of := map[string]int64{}
	if json.Unmarshal(answer, &said) == nil {
		for _, g := range said.LiveHost.Instances {
			of[g.InstanceID] = g.MemoryBytes
		}
	}
	return of
}

func (l *Loop) failed(ctx context.Context, p *workflow.Pause, h workflow.LiveHost, c workflow.LiveCall, v hostop.Outcome) error {
	why := hostop.About(v.Failed, "cannot %s for volume %s on host %s", doing[c.Verb], p.Migration.VolumeName, h.Name)
	var stop *api.Error
	ends := c.Verb == workflow.LiveEnd || c.Verb == workflow.LiveUntrack
	again := v.Again && (ends || c.Attempt+1 < mostAttempts)
	if c.Verb == workflow.LiveUntrack && !v.Again {
		stop = why // the move cannot continue while writes are tracked
	}
	if err := l.answer(ctx, p, h, c, v, stop); err != nil {
		return err
	}
	switch {
	case again:
		return v.Failed // a later round tries again
	case stop != nil:
		return nil //nolint:nilerr // it waits for an operator
	case v.Failed.Code == api.CodeBitmapLost:
		_, err := l.cfg.LiveMoves.Again(ctx, call(p), p.Migration.ID, p.Phase, why)
		return err
	case c.Verb == workflow.LiveRound && !v.Untouched && c.Attempt+1 < mostAttempts && !final(v.Failed):
		return v.Failed // the storage may work again later
	}
	return l.cancel(ctx, p, why)
}

// final reports whether the copy would fail again with this error.
func final(e *api.Error) bool {
	return e.Code == api.CodeNoSpace || e.Code == api.CodeCopyMismatch || e.Code == api.CodeNeedsOperator
}

var doing = map[workflow.LiveVerb]string{
	workflow.LiveCheck: "follow the writes", workflow.LiveMake: "make the destination", workflow.LiveTrack: "begin to follow the writes",
	workflow.LiveRound: "copy what was written", workflow.LiveSwap: "begin the next round", workflow.LiveRead: "read what was written last",
	workflow.LiveLast: "copy what was written last", workflow.LiveEnd: "end the copying", workflow.LiveUntrack: "end following the writes",
}

// settleCall records the result of the last call to a host, when the move needs another call. It
// withdraws the last call if the host has not fetched it, and otherwise waits for the result.
func (l *Loop) settleCall(ctx context.Context, p *workflow.Pause, h workflow.LiveHost) error {
	v := hostop.Outcome{Failed: api.Errorf(api.CodeConflict, "withdrawn")}
	if h.Call.Verb != workflow.LiveCheck {
		r := liveRequest(p, h, h.Call)
		begun, err := l.hosts(p).Begun(ctx, r.Key)
		if begun && err == nil {
			v, err = l.hosts(p).AskSurely(ctx, r)
		}
		if err != nil {
			return err
		}
	}
	return l.answer(ctx, p, h, h.Call, v, nil)
}

// hasten makes a host end a copy that is no longer needed; settleCall finds out the copy's result.
// Each request has a new id: a repeated id would repeat the first answer.
func (l *Loop) hasten(ctx context.Context, p *workflow.Pause, h workflow.LiveHost) {
	if h.Call.Verb != workflow.LiveRound && h.Call.Verb != workflow.LiveLast {
		return
	}
	l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: "end of " + h.ID}, func(ctx context.Context) error {
		end := h.Call
		end.Verb = workflow.LiveEnd
		r := liveRequest(p, h, end)
		r.Key += "." + uuid.NewString()
		v, err := l.hosts(p).Ask(ctx, r)
		if err == nil && v.Failed != nil {
			err = v.Failed
		}
		return err
	})
}
