// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// A part takes the instances of a move from one state to the next, before its volume is copied.
type part struct {
	from, to string
	// verb describes the part in errors.
	verb    string
	request func(*workflow.Pause, workflow.PauseInstance) hostop.Request
	ask     func(context.Context, hostop.Request) (hostop.Outcome, error)
	// oneByOne means that the instances of a host follow one after the other.
	oneByOne bool
}

// check makes every host check that its instances can be suspended and saved, and the copy host
// check that it can copy, before anything changes.
func (l *Loop) check(ctx context.Context, p *workflow.Pause) error {
	left, err := l.bring(ctx, p, part{from: workflow.PausePending, to: workflow.PauseChecked, verb: "save", request: checkRequest, ask: l.hosts.AskNow})
	if left || err != nil {
		return err
	}
	l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: workCheck}, func(ctx context.Context) error {
		v, err := l.hosts.AskNow(ctx, checkCopyRequest(p))
		switch {
		case err != nil:
			return err
		case v.Failed != nil:
			return l.cancel(ctx, p, hostop.About(v.Failed, "cannot copy volume %s on host %s", p.Migration.VolumeName, p.CopyHost.Name))
		}
		_, err = l.cfg.Phases.Suspend(ctx, call, p.Migration.ID)
		return err
	})
	return nil
}

// suspend makes all hosts suspend their instances at once. If one takes too long, all are resumed
// at src.
func (l *Loop) suspend(ctx context.Context, p *workflow.Pause) error {
	left, err := l.bring(ctx, p, part{from: workflow.PauseChecked, to: workflow.PauseSuspended, verb: "suspend", request: suspendRequest, ask: l.hosts.Ask})
	if err != nil {
		return err
	}
	if left {
		if time.Since(p.StoppedAt) < suspendWithin {
			return nil
		}
		why := api.Errorf(api.CodeInstanceBusy, "not all guests of volume %s stood still within %s; the others were let go on", p.Migration.VolumeName, suspendWithin)
		if p.Live != nil {
			_, err := l.cfg.LiveMoves.Again(ctx, call, p.Migration.ID, p.Phase, why)
			return err
		}
		return l.cancel(ctx, p, why)
	}
	_, err = l.cfg.Phases.Save(ctx, call, p.Migration.ID)
	return err
}

// save makes every host save its instances, one after the other.
func (l *Loop) save(ctx context.Context, p *workflow.Pause) error {
	for _, g := range p.Instances {
		if g.State == workflow.PausePending {
			return l.cancel(ctx, p, api.Errorf(api.CodeConflict, "it was begun by an older version, which saved guests while others still ran; begin it anew"))
		}
	}
	left, err := l.bring(ctx, p, part{from: workflow.PauseSuspended, to: workflow.PauseSaved, verb: "save", request: saveRequest, ask: l.hosts.Ask, oneByOne: true})
	if left || err != nil || p.Live != nil {
		return err
	}
	_, err = l.cfg.Phases.Copy(ctx, call, p.Migration.ID)
	return err
}

// bring makes the hosts do a part, and reports whether instances are left. If a host is fenced it
// cancels the move.
func (l *Loop) bring(ctx context.Context, p *workflow.Pause, d part) (left bool, err error) {
	if gone := Fenced(p); gone != nil {
		return true, l.cancel(ctx, p, gone)
	}
	begun := map[string]bool{} // by host
	for _, g := range p.Instances {
		if g.State != d.from {
			continue
		}
		left = true
		if !begun[g.Host.ID] {
			begun[g.Host.ID] = d.oneByOne
			l.background.Go(ctx, hostop.Subject{Migration: p.Migration.ID, What: g.ID}, func(ctx context.Context) error { return l.bringOne(ctx, p, g, d) })
		}
	}
	return left, nil
}

func (l *Loop) bringOne(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance, d part) error {
	v, err := d.ask(ctx, d.request(p, g))
	if err != nil {
		return err
	}
	switch {
	case v.Failed == nil:
		g.State, g.Took = d.to, v.Op.Took()
	case v.Again && g.SaveAttempt+1 < mostAttempts:
		g.SaveAttempt++
		if err := l.set(ctx, p, g); err != nil {
			return err
		}
		return v.Failed // try again after a delay
	default:
		if v.Failed.Details["ran_on"] == true { // another program resumed it, while other guests may be saved
			ran := ranOn(p, g, v.Failed)
			ran.RanAt = time.Now()
			if err := l.set(ctx, p, ran); err != nil {
				return err
			}
		}
		return l.cancel(ctx, p, refusal(g, d.verb, v.Failed))
	}
	return l.set(ctx, p, g)
}

// ranOn returns the instance that was resumed by another program according to a host's error, which
// may be another than g.
func ranOn(p *workflow.Pause, g workflow.PauseInstance, failed *api.Error) workflow.PauseInstance {
	i := slices.IndexFunc(p.Instances, func(o workflow.PauseInstance) bool { return o.ID == failed.Details["instance_id"] })
	if i < 0 {
		return g
	}
	return p.Instances[i]
}
