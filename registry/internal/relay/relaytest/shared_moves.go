// SPDX-License-Identifier: Apache-2.0

package relaytest

import (
	"log/slog"

	"github.com/volferry/volferry/registry/internal/sharedmove"
)

// RunSharedMoves runs the loop of shared moves. mortal, if not nil, kills the loop.
func (s *Site) RunSharedMoves(mortal *Mortal) {
	cfg := sharedmove.Config{
		Moves: s.Store.Pauses, Phases: s.Store.Pauses, Results: s.Store.Pauses, LiveMoves: s.Store.LiveMoves, Rates: s.Store.Rates, Tasks: s.Store.Tasks,
		Relay: s.Relay, Log: slog.New(slog.DiscardHandler),
	}
	if mortal == nil {
		s.Run(sharedmove.New(cfg))
		return
	}
	pauses := MortalPauses{Pauses: s.Store.Pauses, Mortal: mortal}
	cfg.Moves, cfg.Phases, cfg.Results = pauses, pauses, pauses
	cfg.LiveMoves = MortalLiveMoves{LiveMoves: s.Store.LiveMoves, Mortal: mortal}
	cfg.Tasks, cfg.Relay = MortalTasks{Tasks: s.Store.Tasks, Mortal: mortal}, MortalRelay{Relay: s.Relay, Mortal: mortal}
	s.Run(MortalLoop{Loop: sharedmove.New(cfg), Mortal: mortal})
}
