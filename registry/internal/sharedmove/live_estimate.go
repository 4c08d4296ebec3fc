// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// fewUnits is the number of dirty units (blocks of Live.UnitBytes) of a host below which another
// round of copying is not worthwhile.
const fewUnits = 64

// standstill has the RAM of a host's guests in bytes, and the time to save and to restore it,
// estimated from earlier measurements; 0 if unknown.
type standstill struct {
	bytes         int64
	save, restore time.Duration
}

func (l *Loop) standstills(ctx context.Context, p *workflow.Pause) (map[string]standstill, error) {
	all := map[string]standstill{}
	for _, h := range p.Live.Hosts {
		var of standstill
		for _, g := range p.Instances {
			if g.Host.ID == h.ID {
				of.bytes += g.MemoryBytes
			}
		}
		rate, err := l.cfg.Rates.Memory(ctx, h.Name, of.bytes)
		if err != nil {
			return nil, err
		}
		if save, restore, measured := rate.Standstill(of.bytes, workflow.UsualMemoryRate); measured {
			of.save, of.restore = save, restore
		}
		all[h.ID] = of
	}
	return all, nil
}

// tooMuchRAM returns a refusal if a host cannot save and restore its guests' RAM within the
// allowed pause.
func tooMuchRAM(p *workflow.Pause, ram map[string]standstill) *api.Error {
	for _, h := range p.Live.Hosts {
		of := ram[h.ID]
		if pause := workflow.LivePauseBase + of.save + of.restore; of.save > 0 && pause > p.Live.MaxPause {
			return api.Errorf(api.CodePauseTooLong, "cannot move volume %s with a pause of at most %s: host %s needs about %s to save %s of RAM of its guests and %s to restore it, as it did last time; "+
				"nothing was done; allow more with --max-pause %s, or have its save_dir on a faster disk",
				p.Migration.VolumeName, p.Live.MaxPause, h.Name, of.save.Round(time.Second), humanize.Bytes(of.bytes), of.restore.Round(time.Second), (pause+time.Second).Truncate(time.Second)).
				With("estimate_seconds", pause.Seconds())
		}
	}
	return nil
}

// mayPause reports whether a pause of the guests would now fit into the allowed time. In a pause a
// host copies the remaining dirty units while it saves RAM, and then restores RAM.
func mayPause(l *workflow.Live, ram map[string]standstill) bool {
	for _, h := range l.Hosts {
		if h.Dirty < fewUnits*l.UnitBytes {
			continue
		}
		if h.Copied == 0 {
			return false
		}
		last := time.Duration(float64(h.Took) * float64(h.Dirty) / float64(h.Copied))
		if workflow.LivePauseBase+max(last, ram[h.ID].save)+ram[h.ID].restore > l.MaxPause {
			return false
		}
	}
	return true
}

func outrun(p *workflow.Pause) *api.Error {
	var left, copied int64
	var took time.Duration
	for _, h := range p.Live.Hosts {
		left, copied, took = left+h.Dirty, copied+h.Copied, max(took, h.Took)
	}
	advice := "let the hosts hold them back with --throttle-writers, raise --max-pause, or use --pause-all"
	if p.Request.ThrottleWriters {
		advice = "that did not change when they were held back; raise --max-pause, or use --pause-all"
	}
	return api.Errorf(api.CodePauseTooLong, "the guests of volume %s write faster than their hosts copy: %d rounds in a row have left hardly less to copy than the one before "+
		"(%s after the last one, which copied %s in %s), and that does not fit into a pause of %s; nothing is lost, and all go on where they were: %s",
		p.Migration.VolumeName, p.Live.Slow, humanize.Bytes(left), humanize.Bytes(copied), took.Round(time.Second/10), p.Live.MaxPause, advice)
}
