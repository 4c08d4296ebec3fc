// SPDX-License-Identifier: Apache-2.0

package sharedmove

import "fmt"

const (
	hostCount  = 2
	blockCount = 3
	allBlocks  = 1<<blockCount - 1
)

// swapOrder is the order of the steps that replace the bitmap of one round by the next one.
type swapOrder uint8

const (
	// newFirst enables the new bitmap, then disables the old one: two steps.
	newFirst swapOrder = iota
	// oldFirst disables the old bitmap, then enables the new one.
	oldFirst
	// drained does both while no write is in flight.
	drained
)

// copyModel is the copy of a volume that the guests of two hosts write. The zero value has no rule:
// each rule is one field.
type copyModel struct {
	// writes is the number of all guests' writes, rounds the number of rounds between the whole
	// copy and the pause.
	writes, rounds uint8
	// share has the blocks of the whole copy that each host copies.
	share [hostCount]uint8
	// markFirst sets the bit before the data is on src. QEMU sets it afterwards.
	markFirst bool
	swap      swapOrder
	// armAll: no host copies before all hosts have a bitmap.
	armAll bool
	// endAll: no host swaps before all hosts have ended their copying.
	endAll bool
	// swapAll: no host copies in a round before all hosts have swapped for it.
	swapAll bool
	// stopAll: no host makes its last copy before the guests of all hosts are paused.
	stopAll bool
	// qemuDies restarts the QEMU of one host once, at any time, without its bitmaps. daemonDies
	// restarts one daemon once, at any time.
	qemuDies, daemonDies bool
	// missingIsEmpty: a missing bitmap counts as an empty one.
	missingIsEmpty bool
	// dieInHand: the copy starts again while a host still holds a block.
	dieInHand bool
	// forgetTodo: a restarted daemon counts its round as done.
	forgetTodo bool
	// ackedOnly checks only whether acknowledged writes are lost.
	ackedOnly bool
}

// sound is the copy with all its rules.
func sound() copyModel {
	return copyModel{writes: 2, rounds: 1, share: [hostCount]uint8{allBlocks, 0}, swap: newFirst, armAll: true, swapAll: true, stopAll: true}
}

// The stages of a host, in this order; swap and copy repeat for each round.
const (
	stageArm uint8 = iota
	stageWhole
	stageSwap // of round r: stageSwap + 2*r
	stageCopy
)

type bitmap struct {
	exists, on bool
	bits       uint8
}

// copyHost is one host: its guest's write, its QEMU's bitmaps, its daemon's copy.
type copyHost struct {
	// write is the block being written, plus 1; halfDone means that its first half is done.
	write    uint8
	halfDone bool
	stopped  bool
	maps     [2]bitmap
	cur      uint8
	stage    uint8
	// swapped is the number of finished steps of a swap, of two.
	swapped uint8
	todo    uint8
	// held is the block that was read from src and is not on dst yet, plus 1.
	held, heldValue uint8
}

// copyState is a state of copyModel. The content of a block is the number of its writes.
type copyState struct {
	src, dst, acked      [blockCount]uint8
	written              uint8
	hosts                [hostCount]copyHost
	again                bool
	qemuDied, daemonDied bool
}

func (m copyModel) start() copyState { return copyState{} }

func (m copyModel) stageStop() uint8 { return stageSwap + 2*m.rounds }
func (m copyModel) stageLast() uint8 { return m.stageStop() + 1 }
func (m copyModel) stageEnd() uint8  { return m.stageStop() + 2 }

func (m copyModel) isSwap(stage uint8) bool {
	return stage >= stageSwap && stage < m.stageStop() && (stage-stageSwap)%2 == 0
}

func (m copyModel) broken(s copyState, final bool) string {
	if !final {
		return ""
	}
	for h := range s.hosts {
		if s.hosts[h].stage != m.stageEnd() {
			return "the move stands still"
		}
	}
	for b := range blockCount {
		switch {
		case s.dst[b] < s.acked[b]:
			return fmt.Sprintf("%s: block %d", lost, b)
		case s.dst[b] != s.src[b] && !m.ackedOnly:
			return fmt.Sprintf("dst is not as src: block %d", b)
		}
	}
	return ""
}

func (m copyModel) next(s copyState, emit func(event, copyState)) {
	direct := emit
	emit = func(by event, after copyState) { direct(by, m.settle(after)) }
	for h := range hostCount {
		m.guest(s, h, emit)
		m.trouble(s, h, emit)
		m.put(s, h, emit)
		if !s.again {
			m.daemon(s, h, emit)
		}
	}
	if s.again {
		m.beginAgain(s, emit)
	}
}

// guest emits the actions of a host's guest and its QEMU.
func (m copyModel) guest(s copyState, h int, emit func(event, copyState)) {
	if g := s.hosts[h]; g.write == 0 {
		if g.stopped || s.written == m.writes {
			return
		}
		for b := range blockCount {
			a := s
			a.written++
			a.hosts[h].write = uint8(b) + 1
			m.half(a, h, emit)
		}
		return
	}
	m.half(s, h, emit)
}

// half is one half of a write: the data is on src, or the bit is set. A write begins with its first
// half, because before that it has no effect.
func (m copyModel) half(s copyState, h int, emit func(event, copyState)) {
	b := int(s.hosts[h].write) - 1
	last := s.hosts[h].halfDone
	what := "the bit is set, of block"
	if m.markFirst == last {
		what = "the data is on src, of block"
		s.src[b]++
	} else {
		for i := range s.hosts[h].maps {
			if s.hosts[h].maps[i].on {
				s.hosts[h].maps[i].bits |= 1 << b
			}
		}
	}
	s.hosts[h].halfDone = !last
	if last {
		s.hosts[h].write = 0
		s.acked[b] = s.src[b]
		what += " (acknowledged)"
	}
	emit(event{what, h, b}, s)
}

// trouble emits crashes.
func (m copyModel) trouble(s copyState, h int, emit func(event, copyState)) {
	if m.qemuDies && !s.qemuDied && s.hosts[h].stage != m.stageEnd() {
		a := s
		a.qemuDied = true
		g := &a.hosts[h]
		g.write, g.halfDone = 0, false
		g.maps = [2]bitmap{}
		emit(event{"QEMU is started anew", h, -1}, a)
	}
	if m.daemonDies && !s.daemonDied && s.hosts[h].stage != m.stageEnd() {
		a := s
		a.daemonDied = true
		g := &a.hosts[h]
		g.held, g.heldValue = 0, 0
		switch old := g.maps[1-g.cur]; {
		case m.forgetTodo:
			g.todo = 0
		case g.stage == stageWhole:
			g.todo = m.share[h]
		case g.stage == m.stageLast():
			g.todo, a.again = m.read(g.maps[g.cur], a.again)
		case g.stage >= stageCopy && g.stage < m.stageStop() && !m.isSwap(g.stage):
			g.todo, a.again = m.read(old, a.again)
		}
		emit(event{"the daemon is started anew", h, -1}, a)
	}
}

// read returns the bits that a daemon reads from a bitmap, and whether the copy must start again.
func (m copyModel) read(b bitmap, again bool) (bits uint8, beginAgain bool) {
	return b.bits, again || !b.exists && !m.missingIsEmpty
}

// put writes a held block to dst.
func (m copyModel) put(s copyState, h int, emit func(event, copyState)) {
	g := &s.hosts[h]
	if g.held == 0 {
		return
	}
	b := int(g.held) - 1
	s.dst[b] = g.heldValue
	g.held, g.heldValue = 0, 0
	emit(event{"writes what it has read to dst, block", h, b}, s)
}

// daemon emits the next action of a host's daemon.
func (m copyModel) daemon(s copyState, h int, emit func(event, copyState)) {
	g := &s.hosts[h]
	switch {
	case g.stage == m.stageStop() && g.stopped:
		m.beginLast(s, h, emit)
	case m.stageDone(*g): // it waits for another host
	case g.stage == stageArm:
		if m.swap == drained && g.write != 0 {
			return
		}
		g.cur, g.maps = 0, [2]bitmap{{exists: true, on: true}}
		g.swapped = 2
		emit(event{"has its first bitmap", h, -1}, s)
	case m.isSwap(g.stage):
		m.swapStep(s, h, emit)
	case g.stage == m.stageStop():
		if g.write == 0 {
			g.stopped = true
			emit(event{"the guest is suspended", h, -1}, s)
		}
	case g.held == 0:
		for b := range blockCount {
			if g.todo&(1<<b) != 0 {
				a := s
				a.hosts[h].todo &^= 1 << b
				a.hosts[h].held, a.hosts[h].heldValue = uint8(b)+1, s.src[b]
				emit(event{"reads from src, block", h, b}, a)
				if g.stage == stageWhole {
					return // the blocks are alike, so one order stands for all
				}
			}
		}
	}
}

// stageDone reports whether a host has finished its present stage.
func (m copyModel) stageDone(g copyHost) bool {
	switch {
	case g.stage == stageArm, m.isSwap(g.stage):
		return g.swapped == 2
	case g.stage == m.stageStop():
		return g.stopped
	}
	return g.todo == 0 && g.held == 0
}

// swapStep is one step of a swap. It finds a missing bitmap before it changes anything.
func (m copyModel) swapStep(s copyState, h int, emit func(event, copyState)) {
	g := &s.hosts[h]
	if !g.maps[g.cur].exists && !m.missingIsEmpty {
		s.again = true
		emit(event{"finds no bitmap", h, -1}, s)
		return
	}
	enable := func() { g.maps[1-g.cur] = bitmap{exists: true, on: true} }
	disable := func() { g.maps[g.cur].on = false }
	first, then := enable, disable
	what := [2]string{"enables the new bitmap", "disables the old bitmap"}
	if m.swap == oldFirst {
		first, then, what = disable, enable, [2]string{what[1], what[0]}
	}
	switch {
	case m.swap == drained && g.write != 0:
		return
	case m.swap == drained:
		enable()
		disable()
		g.swapped = 2
		what[1] = "swaps its bitmaps"
	case g.swapped == 0:
		first()
		g.swapped = 1
		emit(event{what[0], h, -1}, s)
		return
	default:
		then()
		g.swapped = 2
	}
	g.todo = g.maps[g.cur].bits
	g.cur = 1 - g.cur
	emit(event{what[1], h, -1}, s)
}

// passes reports whether the barriers let a host leave its finished stage.
func (m copyModel) passes(s copyState, h int) bool {
	g := s.hosts[h]
	barrier := m.endAll
	switch {
	case g.stage == stageArm:
		barrier = m.armAll
	case m.isSwap(g.stage):
		barrier = m.swapAll
	case g.stage == m.stageStop():
		barrier = m.stopAll
	}
	for _, o := range s.hosts {
		if barrier && (o.stage < g.stage || o.stage == g.stage && !m.stageDone(o)) {
			return false
		}
	}
	return true
}

// settle moves the hosts to their next stages, as far as that has no visible effect.
func (m copyModel) settle(s copyState) copyState {
	for moved := !s.again; moved; {
		moved = false
		for h := range s.hosts {
			g := &s.hosts[h]
			if g.stage == m.stageStop() || g.stage == m.stageEnd() || !m.stageDone(*g) || !m.passes(s, h) {
				continue
			}
			moved = true
			g.stage++
			g.swapped = 0
			if g.stage == stageWhole {
				g.todo = m.share[h]
			}
		}
	}
	return s
}

// beginLast takes a host from the pause to its last copy: it reads its bitmap.
func (m copyModel) beginLast(s copyState, h int, emit func(event, copyState)) {
	g := &s.hosts[h]
	if !m.passes(s, h) {
		return
	}
	g.stage++
	g.todo, s.again = m.read(g.maps[g.cur], s.again)
	emit(event{"begins its last copy", h, -1}, s)
}

// beginAgain is the registry's reaction to a missing bitmap: once no host holds a block, the guests
// are resumed and the whole copy starts again.
func (m copyModel) beginAgain(s copyState, emit func(event, copyState)) {
	for h := range s.hosts {
		g := &s.hosts[h]
		if g.held != 0 && !m.dieInHand {
			return
		}
		*g = copyHost{write: g.write, halfDone: g.halfDone, held: g.held, heldValue: g.heldValue}
	}
	s.again = false
	emit(event{"the copy begins again", -1, -1}, s)
}
