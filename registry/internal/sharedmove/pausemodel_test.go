// SPDX-License-Identifier: Apache-2.0

package sharedmove

// pauseModel is the pause of two guests, from the suspend of the first one until both are resumed.
// The zero value has all rules: each field removes one.
type pauseModel struct {
	// resumeEarly: a guest is resumed as soon as it is restored.
	resumeEarly bool
	// backAfterDecision: if a guest cannot be restored on dst, all return to src.
	backAfterDecision bool
	// decisionInMemory: the decision for dst is not stored before guests are restored there.
	decisionInMemory bool
	// wakeAlone: a host that has waited long for the registry restores its guest on src by itself.
	wakeAlone bool
	// restoreLate: a host does not ask before it restores a guest.
	restoreLate bool
	// claim is the only claim to check; "" means all.
	claim string
}

// side is the location of a guest's volume.
type side uint8

const (
	onSrc side = iota
	onDst
	sides
)

// pausePhase is the registry's stored phase of a pause.
type pausePhase uint8

const (
	phaseSuspending pausePhase = iota
	phaseSaving
	phaseDecided
	phaseCancelling
)

// guestState is the state of a guest.
type guestState uint8

const (
	guestRuns guestState = iota
	guestStill
	guestSaved
	guestReady
	guestOff
)

// pauseGuest is one guest. file means that its memory is in a file.
type pauseGuest struct {
	state  guestState
	at     side
	file   bool
	failed bool
	wrote  bool
}

// pauseState is a state of pauseModel. content and acked have a bit for each write: each guest
// makes one before the pause, and one after it.
type pauseState struct {
	content [sides]uint8
	acked   uint8
	phase   pausePhase
	copied  bool
	// resuming means that the last barrier was passed, ranOn that a guest was resumed, and stale
	// that a guest was then restored from older memory.
	resuming, ranOn, stale bool
	// decided is a decision that is only in memory.
	decided                               bool
	hostDied, restoreFailed, registryDied bool
	guests                                [hostCount]pauseGuest
}

func (m pauseModel) start() pauseState { return pauseState{} }

// The claims of the model: none of these may happen.
const (
	lost   = "an acknowledged write is lost"
	split  = "one guest runs on src, the other on dst"
	stale  = "memory is restored that is older than what others wrote"
	asleep = "a guest does not run at the end"
)

func (m pauseModel) broken(s pauseState, final bool) string {
	var runs [sides]bool
	found := map[string]bool{stale: s.stale}
	for _, g := range s.guests {
		if g.state == guestRuns {
			runs[g.at] = true
			found[lost] = found[lost] || s.acked&^s.content[g.at] != 0
		} else if final {
			found[asleep] = true
		}
	}
	found[split] = runs[onSrc] && runs[onDst]
	for _, claim := range []string{lost, split, stale, asleep} {
		if found[claim] && (m.claim == "" || m.claim == claim) {
			return claim
		}
	}
	return ""
}

func (m pauseModel) next(s pauseState, emit func(event, pauseState)) {
	m.registry(s, emit)
	for h := range hostCount {
		m.host(s, h, emit)
		m.trouble(s, h, emit)
	}
}

// registry emits the actions of the registry: transactions, and the copy.
func (m pauseModel) registry(s pauseState, emit func(event, pauseState)) {
	step := func(what string, change func(*pauseState)) {
		a := s
		change(&a)
		emit(event{what, -1, -1}, a)
	}
	open := (s.phase == phaseSuspending || s.phase == phaseSaving) && !s.decided
	if open {
		step("the move is cancelled", func(a *pauseState) { a.phase = phaseCancelling })
	}
	switch {
	case s.phase == phaseSuspending && s.all(guestStill):
		step("all stand still", func(a *pauseState) { a.phase = phaseSaving })
	case s.phase == phaseSaving && open && !s.copied && s.all(guestStill):
		step("what is left is copied to dst", func(a *pauseState) { a.copied, a.content[onDst] = true, a.content[onSrc] })
	case s.phase == phaseSaving && open && s.copied && s.all(guestSaved):
		step("the decision for dst", func(a *pauseState) {
			if m.decisionInMemory {
				a.decided = true
			} else {
				a.phase = phaseDecided
			}
		})
	case s.decided && !s.registryDied:
		step("the registry dies and is started anew", func(a *pauseState) { a.decided, a.registryDied, a.phase = false, true, phaseCancelling })
	}
	if _, waking := s.goal(); waking && !s.resuming {
		for _, g := range s.guests {
			if g.state != guestReady && g.state != guestOff && g.state != guestRuns && !g.failed {
				return
			}
		}
		step("all can run on", func(a *pauseState) { a.resuming = true })
	}
}

// goal returns the side where the guests are restored, and whether they are to be.
func (s pauseState) goal() (to side, waking bool) {
	switch {
	case s.phase == phaseDecided || s.decided:
		return onDst, true
	case s.phase == phaseCancelling:
		return onSrc, true
	}
	return onSrc, false
}

func (s pauseState) all(state guestState) bool {
	for _, g := range s.guests {
		if g.state != state {
			return false
		}
	}
	return true
}

// host emits the actions of a host on its guest, and the guest's own.
func (m pauseModel) host(s pauseState, h int, emit func(event, pauseState)) {
	g := s.guests[h]
	step := func(what string, change func(*pauseState, *pauseGuest)) {
		a := s
		change(&a, &a.guests[h])
		emit(event{what, h, -1}, a)
	}
	run := func(a *pauseState, g *pauseGuest) {
		g.state, g.file, g.failed, g.wrote = guestRuns, false, false, false
		a.ranOn = true
	}
	if g.state == guestRuns && !g.wrote {
		step("the guest writes", func(a *pauseState, g *pauseGuest) {
			bit := uint8(1) << h
			if s.ranOn {
				bit <<= hostCount
			}
			g.wrote = true
			a.content[g.at] |= bit
			a.acked |= bit
		})
	}
	to, waking := s.goal()
	switch {
	case s.phase == phaseSuspending && g.state == guestRuns:
		step("the guest is suspended", func(_ *pauseState, g *pauseGuest) { g.state = guestStill })
	case s.phase == phaseSaving && !waking && s.copied && g.state == guestStill:
		step("the guest is saved", func(_ *pauseState, g *pauseGuest) { g.state, g.file = guestSaved, true })
	}
	if m.wakeAlone && g.state == guestSaved && s.phase != phaseCancelling {
		step("the host restores the guest on src by itself", run)
	}
	if !waking {
		return
	}
	switch {
	case g.state == guestStill && to == onSrc:
		step("the guest stands still on src", func(_ *pauseState, g *pauseGuest) { g.state = guestReady })
	case g.state == guestReady && g.at != to:
		step("what was restored is ended, its file is kept", func(_ *pauseState, g *pauseGuest) { g.state = guestSaved })
	case g.state == guestReady && (s.resuming || m.resumeEarly):
		step("the guest runs on", run)
	case g.state == guestSaved && !g.failed && (!s.ranOn || m.restoreLate):
		step("the guest is restored, standing still", func(a *pauseState, g *pauseGuest) {
			g.state, g.at = guestReady, to
			a.stale = a.ranOn
		})
	case s.resuming && (g.state == guestOff || g.state == guestSaved):
		step("the operator starts the guest anew", func(a *pauseState, g *pauseGuest) { g.at = to; run(a, g) })
	}
}

// trouble emits failures: one host crashes, and one guest cannot be restored.
func (m pauseModel) trouble(s pauseState, h int, emit func(event, pauseState)) {
	g := s.guests[h]
	if !s.hostDied && g.state != guestOff {
		a := s
		a.hostDied = true
		switch {
		case g.file:
			a.guests[h].state = guestSaved
		default:
			a.guests[h].state = guestOff
		}
		if !a.waking() {
			a.phase = phaseCancelling
		}
		emit(event{"the host dies", h, -1}, a)
	}
	if to, waking := s.goal(); waking && g.state == guestSaved && !g.failed && !s.restoreFailed {
		a := s
		a.restoreFailed = true
		a.guests[h].failed = true
		if m.backAfterDecision && to == onDst {
			a.phase, a.decided, a.resuming = phaseCancelling, false, true
			a.guests[h].failed = false
			for o := range a.guests {
				if o != h && a.guests[o].state == guestRuns {
					a.guests[o].state = guestOff
				}
			}
		}
		emit(event{"the guest cannot be restored", h, -1}, a)
	}
}

func (s pauseState) waking() bool {
	_, waking := s.goal()
	return waking
}
