// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Live is how far the copy is of a volume whose guests write meanwhile. The words are those
// of package liveshared.
type Live struct {
	// Generation begins with a copy of the whole volume. Round 0 of it is that copy.
	Generation, Round int
	UnitBytes         int64
	// MaxPause is how long the guests may stand still by the operator's word.
	MaxPause time.Duration
	// Fruitless is how many generations were begun anew since a whole volume was copied, and
	// CalledOff how many pauses ended with all guests where they were.
	Fruitless, CalledOff int
	// Left is what was left to copy when the last round began. Slow is how many rounds in a row
	// have left hardly less than the one before, and Throttled how many times what the guests
	// may write was made less.
	Left            int64
	Slow, Throttled int
	Hosts           []LiveHost
}

// LiveHost is a host that has a guest of the volume.
type LiveHost struct {
	PauseHost
	// From and Until are the bytes of the volume that it copies in round 0.
	From, Until int64
	// Call is what it was asked for last, and State what is known of that. A host is asked
	// for one thing at a time: the next one only when the last one is over.
	Call  LiveCall
	State LiveState
	// What it said of its last round: bytes that were written meanwhile, bytes that it copied,
	// and how long that took.
	Dirty, Copied int64
	Took          time.Duration
	// Error is what stops it until an operator says more.
	Error *api.Error
}

// LiveCall is one call of a host. Generation and Round are 0 where it is of none.
type LiveCall struct {
	Verb              LiveVerb
	Generation, Round int
	// Attempt counts how often it was made before.
	Attempt int
}

// LiveVerb is what a host is asked for.
type LiveVerb string

// What hosts are asked for, in this order; swap and round in turn.
const (
	LiveCheck   LiveVerb = "check"
	LiveMake    LiveVerb = "make"
	LiveTrack   LiveVerb = "track"
	LiveRound   LiveVerb = "round"
	LiveSwap    LiveVerb = "swap"
	LiveRead    LiveVerb = "read"
	LiveLast    LiveVerb = "last"
	LiveEnd     LiveVerb = "end"
	LiveUntrack LiveVerb = "untrack"
)

// LiveState is what is known of a call.
type LiveState string

// Asked: the host may be doing it. Done: it has done it. Ended: it has not, and does nothing
// of it any more.
const (
	LiveIdle  LiveState = ""
	LiveAsked LiveState = "asked"
	LiveDone  LiveState = "done"
	LiveEnded LiveState = "ended"
)

// again reports whether two calls ask for the same.
func (c LiveCall) again(other LiveCall) bool {
	c.Attempt = other.Attempt
	return c == other
}

// touched reports whether the host may have done something that has to be undone.
func (h LiveHost) touched() bool { return h.Call.Verb != "" && h.Call.Verb != LiveCheck }

// next is the call by which the host does what verb says, or has done it.
func (h LiveHost) next(want LiveCall) LiveCall {
	if !h.Call.again(want) {
		return want
	}
	want.Attempt = h.Call.Attempt
	if h.State == LiveEnded {
		want.Attempt++
	}
	return want
}

// wanted is what a phase asks each host for, the copy host alone for making.
var wanted = map[PausePhase]LiveVerb{
	PauseChecking: LiveCheck, PauseMaking: LiveMake, PauseTracking: LiveTrack, PauseCopying: LiveRound, PauseSwapping: LiveSwap,
	PauseAgain: LiveEnd, PauseLast: LiveRead, PauseSaving: LiveLast, PauseRestoring: LiveUntrack, PauseCancelling: LiveUntrack,
}

// call is what a verb asks for now.
func (l *Live) call(verb LiveVerb) LiveCall {
	switch verb {
	case LiveCheck, LiveMake, LiveUntrack:
		return LiveCall{Verb: verb}
	case LiveTrack, LiveRound, LiveSwap, LiveRead, LiveLast, LiveEnd:
	}
	return LiveCall{Verb: verb, Generation: l.Generation, Round: l.Round}
}

// shares divides a volume among so many hosts, at the borders of units. It returns where
// each share ends.
func shares(bytes, unit int64, hosts int) []int64 {
	units := (bytes + unit - 1) / unit
	ends := make([]int64, 0, hosts)
	for n := range hosts {
		ends = append(ends, min(bytes, units*int64(n+1)/int64(hosts)*unit))
	}
	return ends
}

func readLive(ctx context.Context, q ledger.Querier, id string) (*Live, error) {
	l := &Live{}
	var maxPause int64
	if err := q.QueryRowContext(ctx, "SELECT generation, round, unit_bytes, max_pause_ms, fruitless, called_off, left_bytes, slow, throttled FROM live_moves WHERE migration_id = ?", id).
		Scan(&l.Generation, &l.Round, &l.UnitBytes, &maxPause, &l.Fruitless, &l.CalledOff, &l.Left, &l.Slow, &l.Throttled); err != nil {
		return nil, fmt.Errorf("read how far a volume is copied whose guests write: %w", err)
	}
	l.MaxPause = time.Duration(maxPause) * time.Millisecond
	var err error
	l.Hosts, err = ledger.QueryAll(ctx, q, scanLiveHost, `SELECT h.id, h.name, h.fenced, l.from_bytes, l.until_bytes, l.verb, l.generation, l.round, l.attempt, l.state,
			l.dirty_bytes, l.copied_bytes, l.took_ms, l.error
		FROM live_hosts l JOIN hosts h ON h.id = l.host_id WHERE l.migration_id = ? ORDER BY h.name`, id)
	return l, err
}

func scanLiveHost(row ledger.Scanner) (LiveHost, error) {
	var (
		h    LiveHost
		took int64
		fail []byte
	)
	if err := row.Scan(&h.ID, &h.Name, &h.Fenced, &h.From, &h.Until, &h.Call.Verb, &h.Call.Generation, &h.Call.Round, &h.Call.Attempt, &h.State,
		&h.Dirty, &h.Copied, &took, &fail); err != nil {
		return h, err
	}
	h.Took = time.Duration(took) * time.Millisecond
	var err error
	h.Error, err = decodeError(fail)
	return h, err
}
