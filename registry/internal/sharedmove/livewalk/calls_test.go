// SPDX-License-Identifier: Apache-2.0

package livewalk_test

import (
	"github.com/volferry/volferry/internal/api"
)

// live returns the action of a call about the copy, which also checks the invariants; nil for other
// calls.
func (d *daemon) live(verb string, body []byte, o *op) func() (bool, *api.Error) {
	s := d.site
	switch verb {
	case "make-live":
		var in api.LiveMake
		d.read(body, &in)
		return once(func() *api.Error {
			dst := in.Dst
			dst.Path = "/" + dst.Pool + "/" + dst.Name
			s.images[dst.Path] = &image{unwritten, unwritten, unwritten, unwritten, unwritten, unwritten}
			o.Location = &dst
			return nil
		})
	case "track":
		var in api.LiveTrack
		d.read(body, &in)
		return once(func() *api.Error { return d.track(in.Generation) })
	case "swap":
		var in api.LiveSwap
		d.read(body, &in)
		return d.swap(in.Generation, in.Round)
	case "copy-round":
		var in api.LiveRound
		d.read(body, &in)
		if d.full {
			return once(func() *api.Error { return api.Errorf(api.CodeNoSpace, "dst is full") })
		}
		return d.round(in, o)
	case "end-round":
		var in api.LiveEndRound
		d.read(body, &in)
		return once(func() *api.Error { d.endRounds(in.Generation); return nil })
	case "last-read":
		var in api.LiveLastRead
		d.read(body, &in)
		return once(func() *api.Error { return d.lastRead(in.Generation) })
	case "last-copy":
		var in api.LiveLastCopy
		d.read(body, &in)
		return d.lastCopy(in, o)
	case "untrack":
		return once(d.untrack)
	}
	return nil
}

var (
	stillThere = api.Errorf(api.CodeInternal, "a bitmap is there and cannot be removed")
	bitmapLost = api.Errorf(api.CodeBitmapLost, "a bitmap is not there")
	isOver     = api.Errorf(api.CodeStateForbidden, "that is over")
)

func (d *daemon) isOver(generation int) bool { return d.left || generation <= d.over }

func (d *daemon) track(generation int) *api.Error {
	if d.isOver(generation) {
		return isOver
	}
	for host, other := range d.site.hosts {
		if other.held != nil {
			d.site.wrong("R6: generation %d is begun while host %s has a block of before in its hands", generation, host)
		}
	}
	d.followed = map[string]int{}
	for _, g := range d.guests {
		d.followed[g.name] = g.process
		g.heldOff = g.process == 0
		if g.process != 0 {
			g.maps[mapName(generation, 0)] = &bitmap{on: true}
		}
	}
	d.reached = step{generation, 0}
	return nil
}

// tracked returns the bitmaps of a round, and whether all guests have theirs.
func (d *daemon) tracked(generation, round int) (maps []*bitmap, all bool) {
	for _, g := range d.guests {
		if g.process != d.followed[g.name] {
			return nil, false
		}
		if g.process == 0 {
			continue
		}
		m := g.maps[mapName(generation, round)]
		if m == nil {
			return nil, false
		}
		maps = append(maps, m)
	}
	return maps, true
}

func (d *daemon) swap(generation, round int) func() (bool, *api.Error) {
	begun := false
	return func() (bool, *api.Error) {
		if d.isOver(generation) {
			return false, isOver
		}
		if d.held != nil {
			d.site.wrong("R3: host %s swaps for round %d with a block in its hands", d.Name, round)
		}
		if _, all := d.tracked(generation, round-1); !all {
			return false, bitmapLost
		}
		pending := false
		for _, g := range d.guests {
			if !begun && g.process != 0 && g.maps[mapName(generation, round)] == nil {
				g.maps[mapName(generation, round)] = &bitmap{on: true}
				g.ending = mapName(generation, round-1)
			}
			pending = pending || g.ending != ""
		}
		begun = true
		if pending {
			return false, nil
		}
		d.reached = step{generation, round}
		return true, nil
	}
}

// round copies a share of the volume, or the blocks in the last bitmaps.
func (d *daemon) round(in api.LiveRound, o *op) func() (bool, *api.Error) {
	now := step{in.Generation, in.Round}
	var (
		todo   bits
		lost   bool
		copied int64
	)
	o.copies, o.of = true, in.Generation
	o.begin = func() {
		todo, lost = 0, false
		if in.Round > 0 {
			todo, lost = d.dirty(in.Generation, in.Round-1)
			return
		}
		for b := range blocks {
			if at := int64(b) * blockBytes; at >= in.FromBytes && at < in.UntilBytes {
				todo |= 1 << b
			}
		}
	}
	return func() (bool, *api.Error) {
		switch {
		case d.isOver(in.Generation):
			return false, isOver
		case lost:
			return false, bitmapLost
		case d.copyBlock(&todo, in.Dst, func() {
			copied += blockBytes
			for host, other := range d.site.hosts {
				if other.reached.before(now) {
					d.site.wrong("R1, R3: host %s reads src for %v, and host %s is at %v", d.Name, now, host, other.reached)
				}
			}
		}):
			return false, nil
		}
		for _, g := range d.guests {
			delete(g.maps, mapName(in.Generation, in.Round-1))
		}
		// The remaining bytes are only for the estimate, and no rule may depend on them.
		o.Live = &api.LiveOutcome{CopiedBytes: copied, Seconds: 1}
		if d.site.random.IntN(3) == 0 {
			o.Live.DirtyBytes = 1 << 40
		}
		return true, nil
	}
}

// dirty returns the blocks in the bitmaps of a round.
func (d *daemon) dirty(generation, round int) (all bits, lost bool) {
	maps, ok := d.tracked(generation, round)
	for _, m := range maps {
		all |= m.bits
	}
	return all, !ok
}

// copyBlock does half of the copy of a block, its read or its write. It reports whether there was
// anything to do.
func (d *daemon) copyBlock(todo *bits, dst api.Location, onRead func()) bool {
	s := d.site
	if d.held != nil {
		if img := s.images[dst.Path]; img == nil {
			s.wrong("R6: host %s writes to %s, which is not there", d.Name, dst.Path)
		} else {
			img[d.held.block] = d.held.content
		}
		d.held = nil
		return true
	}
	for _, b := range s.random.Perm(blocks) {
		if *todo&(1<<b) != 0 {
			*todo &^= 1 << b
			d.held = &heldBlock{b, s.images[srcPath][b]}
			onRead()
			return true
		}
	}
	return false
}

// endRounds ends the copies of generations up to this one.
func (d *daemon) endRounds(generation int) {
	for _, o := range d.running() {
		if o.copies && o.of <= generation {
			o.State, o.Error = api.OpUndone, isOver
			d.held = nil
		}
	}
	d.over = max(d.over, generation)
	for _, g := range d.guests {
		g.maps, g.ending = map[string]*bitmap{}, ""
	}
}

func (d *daemon) lastRead(generation int) *api.Error {
	if d.isOver(generation) {
		return isOver
	}
	// A read that arrives after its generation was cancelled and its guests were resumed is late,
	// and its bitmaps are not used. They must not be copied.
	d.ranAtRead = ""
	d.site.each(func(_ *daemon, g *guest) {
		if g.runs() {
			d.ranAtRead = g.name
		}
	})
	maps, all := d.tracked(generation, d.reached.round)
	if !all {
		return bitmapLost
	}
	d.last = 0
	for _, m := range maps {
		m.on = false
		d.last |= m.bits
	}
	return nil
}

func (d *daemon) lastCopy(in api.LiveLastCopy, o *op) func() (bool, *api.Error) {
	var todo bits
	o.copies, o.of = true, in.Generation
	o.begin = func() { todo = d.last }
	return func() (bool, *api.Error) {
		if d.isOver(in.Generation) {
			return false, isOver
		}
		if d.ranAtRead != "" {
			d.site.wrong("R4: host %s copies by bitmaps that it read while guest %s ran", d.Name, d.ranAtRead)
		}
		return !d.copyBlock(&todo, in.Dst, func() {
			d.site.each(func(_ *daemon, g *guest) {
				if g.runs() {
					d.site.wrong("R4: host %s copies what is left while guest %s runs", d.Name, g.name)
				}
			})
		}), nil
	}
}

func (d *daemon) untrack() *api.Error {
	if d.stuck > 0 {
		d.stuck--
		return stillThere
	}
	d.endRounds(d.over)
	for _, o := range d.running() {
		if o.copies {
			d.site.wrong("R6: host %s is to leave the move and still copies", d.Name)
		}
	}
	d.left = true
	for _, g := range d.guests {
		g.heldOff = false
	}
	return nil
}
