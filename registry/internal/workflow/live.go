// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Live is the progress of a live move: the volume is copied while its guests write.
type Live struct {
	// A generation begins with a copy of the whole volume in round 0. Round counts its further
	// rounds.
	Generation, Round int
	UnitBytes         int64
	// MaxPause is the longest pause of the guests that the operator allows.
	MaxPause time.Duration
	// Fruitless counts the generations begun since the last complete copy. CalledOff counts the
	// pauses that were cancelled with all guests at src.
	Fruitless, CalledOff int
	// Left is the number of bytes to copy at the start of the last round. Slow counts the
	// consecutive slow rounds, Throttled how often the guests' writes were throttled further.
	Left            int64
	Slow, Throttled int
	Hosts           []LiveHost
}

// LiveHost is a host with a guest of the volume.
type LiveHost struct {
	PauseHost
	// From and Until are the range of the volume that the host copies in round 0, in bytes.
	From, Until int64
	// Call is the last call to the host, and State its known result. The next call waits for its
	// end.
	Call  LiveCall
	State LiveState
	// The results of its last round: bytes written by guests during it, bytes copied, and its
	// duration.
	Dirty, Copied int64
	Took          time.Duration
	// Error blocks the host until an operator acts.
	Error *api.Error
}

// LiveCall is a call to a host. Generation and Round are 0 for a verb that does not use them.
type LiveCall struct {
	Verb              LiveVerb
	Generation, Round int
	// Attempt counts the earlier attempts.
	Attempt int
}

// LiveVerb is the action of a call.
type LiveVerb string

// The actions, in this order; swap and round alternate.
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

// LiveState is the known result of a call.
type LiveState string

// Asked: the host may be executing the call. Done: it has succeeded. Ended: it has failed, and the
// host will not continue it.
const (
	LiveIdle  LiveState = ""
	LiveAsked LiveState = "asked"
	LiveDone  LiveState = "done"
	LiveEnded LiveState = "ended"
)

func (c LiveCall) again(other LiveCall) bool {
	c.Attempt = other.Attempt
	return c == other
}

func (h LiveHost) touched() bool { return h.Call.Verb != "" && h.Call.Verb != LiveCheck }

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

// wanted has the action of all hosts in each phase. The action make is for the copy host alone.
var wanted = map[PausePhase]LiveVerb{
	PauseChecking: LiveCheck, PauseMaking: LiveMake, PauseTracking: LiveTrack, PauseCopying: LiveRound, PauseSwapping: LiveSwap,
	PauseAgain: LiveEnd, PauseLast: LiveRead, PauseSaving: LiveLast, PauseRestoring: LiveUntrack, PauseCancelling: LiveUntrack,
}

func (l *Live) call(verb LiveVerb) LiveCall {
	switch verb {
	case LiveCheck, LiveMake, LiveUntrack:
		return LiveCall{Verb: verb}
	case LiveTrack, LiveRound, LiveSwap, LiveRead, LiveLast, LiveEnd:
	}
	return LiveCall{Verb: verb, Generation: l.Generation, Round: l.Round}
}

// shares returns the end of each host's part of a volume, in bytes; all but the last are multiples
// of unit.
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
