// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// saved makes a move of disk with these times of saving and restoring instances with this much RAM.
func saved(t *testing.T, s *Store, bytes int64, save, restore time.Duration) {
	t.Helper()
	m := must(s.LiveMoves.Register(t.Context(), nobody, "disk", api.MigrationTarget{ToPool: "san"}, bothHere))(t)
	p := must(s.Pauses.Get(t.Context(), m.ID))(t)
	for _, h := range p.Live.Hosts {
		of := map[string]int64{}
		for _, g := range p.Instances {
			of[g.ID] = bytes
		}
		c, _ := p.LiveNext(h)
		must(s.LiveMoves.Ask(t.Context(), nobody, m.ID, p.Phase, h.ID, c))(t)
		p = must(s.LiveMoves.Answer(t.Context(), nobody, m.ID, h.ID, c, LiveAnswer{Done: true, Memory: of}))(t)
	}
	p = hostsDo(t, s, liveAt(t, s, p, PauseSaving))
	for _, g := range p.Instances {
		g.State, g.Took = PauseSaved, save
		p = must(s.Pauses.SetInstance(t.Context(), nobody, m.ID, p.Phase, g))(t)
	}
	p = must(s.Pauses.Cancel(t.Context(), nobody, m.ID, nil))(t)
	p = hostsDo(t, s, p)
	for _, g := range p.Instances {
		g.State, g.Took = PauseReady, restore
		p = must(s.Pauses.SetInstance(t.Context(), nobody, m.ID, p.Phase, g))(t)
	}
	bring(t, s, must(s.Pauses.Resume(t.Context(), nobody, m.ID))(t), PauseRestored)
	must(s.Pauses.SetCopy(t.Context(), nobody, m.ID, p.Phase, 0, "", nil))(t)
	must(s.Pauses.Finish(t.Context(), nobody, m.ID))(t)
}

func TestTheRateOfRAMIsThatOfEarlierPausesOfAsMuch(t *testing.T) {
	s := newPauseSite(t)
	if r := must(s.Rates.Memory(t.Context(), "a", 1<<30))(t); r != (MemoryRate{}) {
		t.Errorf("before anything was saved: %+v", r)
	}
	saved(t, s, 1<<30, 8*time.Second, 4*time.Second)
	saved(t, s, 1<<30, 16*time.Second, 2*time.Second)
	want := MemoryRate{Save: 1 << 27, Restore: 1 << 29}
	if r := must(s.Rates.Memory(t.Context(), "a", 4<<30))(t); r != want {
		t.Errorf("rate = %+v, want %+v", r, want)
	}
	if r := must(s.Rates.Memory(t.Context(), "a", 5<<30))(t); r != (MemoryRate{}) {
		t.Errorf("of much more RAM: %+v", r)
	}
	if r := must(s.Rates.Memory(t.Context(), "elsewhere", 1))(t); r != (MemoryRate{}) {
		t.Errorf("of another host: %+v", r)
	}
	save, restore, measured := want.Standstill(1<<30, UsualMemoryRate)
	if save != 8*time.Second || restore != 2*time.Second || !measured {
		t.Errorf("standstill = %s, %s, %t", save, restore, measured)
	}
}
