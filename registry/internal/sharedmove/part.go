// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// A part is a call that a host gets about each of its instances, before the volume is at dst. It
// takes the instance from one state to the next.
type part struct {
	from, to string
	verb     string
	request  func(*workflow.Pause, workflow.PauseInstance) hostop.Request
	ask      func(*hostop.Client, context.Context, hostop.Request) (hostop.Outcome, error)
	// oneByOne means that a host gets the calls for its instances one after the other.
	oneByOne bool
}

var (
	// checkPart makes every host check that its instances can be suspended and saved.
	checkPart   = part{from: workflow.PausePending, to: workflow.PauseChecked, verb: "save", request: checkRequest, ask: (*hostop.Client).AskNow}
	suspendPart = part{from: workflow.PauseChecked, to: workflow.PauseSuspended, verb: "suspend", request: suspendRequest, ask: (*hostop.Client).Ask}
	savePart    = part{from: workflow.PauseSuspended, to: workflow.PauseSaved, verb: "save", request: saveRequest, ask: (*hostop.Client).Ask, oneByOne: true}
)

// bring makes the hosts do part d, and reports whether an instance has not completed it yet.
func (l *Loop) bring(ctx context.Context, p *workflow.Pause, d *part) (left bool) {
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
	return left
}

func (l *Loop) bringOne(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance, d *part) error {
	v, err := d.ask(l.hosts(p), ctx, d.request(p, g))
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
		return v.Failed
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

func ranOn(p *workflow.Pause, g workflow.PauseInstance, failed *api.Error) workflow.PauseInstance {
	i := slices.IndexFunc(p.Instances, func(o workflow.PauseInstance) bool { return o.ID == failed.Details["instance_id"] })
	if i < 0 {
		return g
	}
	return p.Instances[i]
}
