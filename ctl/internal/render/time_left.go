// SPDX-License-Identifier: Apache-2.0

package render

import (
	"time"

	"github.com/volferry/volferry/internal/api"
)

const (
	// measureFor is how long a phase is measured before its remaining time is shown: the first
	// seconds go into memory, faster than the storage.
	measureFor    = 10 * time.Second
	measureWindow = 30 * time.Second
)

type measured struct {
	phase   string
	samples []sample // oldest first
}

type sample struct {
	at   time.Time
	done int64
}

// left returns the remaining time of m's phase at the recent rate, 0 if unknown.
func (p *measured) left(m *api.Migration, now time.Time) time.Duration {
	if last := len(p.samples) - 1; m.Phase != p.phase || last >= 0 && m.BytesDone < p.samples[last].done {
		p.phase, p.samples = m.Phase, nil
	}
	p.samples = append(p.samples, sample{now, m.BytesDone})
	for len(p.samples) > 2 && now.Sub(p.samples[1].at) >= measureWindow {
		p.samples = p.samples[1:]
	}
	first := p.samples[0]
	took, done := now.Sub(first.at), m.BytesDone-first.done
	if took < measureFor || done <= 0 {
		return 0
	}
	return time.Duration(float64(m.BytesTotal-m.BytesDone) / float64(done) * float64(took))
}
