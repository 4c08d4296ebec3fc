// SPDX-License-Identifier: Apache-2.0

package liveshared_test

import "fmt"

// blocks is how many blocks the volume of the tests has.
const blocks = 6

// image is the content of one end of a volume. The content of a block is the number of the
// write that made it; unwritten is what nobody has written.
type image [blocks]int

const unwritten = -1

// bits has a bit for each block.
type bits uint8

// bitmap is one in a QEMU. It ends with the process.
type bitmap struct {
	on   bool
	bits bits
}

// guest is an instance on its host, with its QEMU.
type guest struct {
	name string
	// process is the number of its process, 0 if it is off. Still: the process is paused.
	// Memory: its RAM is in a file.
	process       int
	still, memory bool
	// It does not start by itself while it is followed and was off, or in the pause.
	heldOff, inPause bool
	at               string
	maps             map[string]*bitmap
	// ending is the bitmap that QEMU is about to disable, as the second half of a swap.
	ending string
	// writing is the number of a write whose data is on the volume and whose bit is not set
	// yet, of a block; 0 if there is none.
	writing, block int
}

func (g *guest) guarded() bool { return g.heldOff || g.inPause }

func (g *guest) runs() bool { return g.process != 0 && !g.still }

// write is one half of a write: the data is on the volume, or the bit is set and the guest is
// answered.
func (s *site) write(g *guest) {
	img := s.images[g.at]
	if img == nil {
		s.wrong("guest %s writes to %s, which is not there", g.name, g.at)
		return
	}
	if g.writing == 0 {
		s.writes++
		g.writing, g.block = s.writes, s.random.IntN(blocks)
		img[g.block] = g.writing
		return
	}
	for _, m := range g.maps {
		if m.on {
			m.bits |= 1 << g.block
		}
	}
	s.acked[g.block] = max(s.acked[g.block], g.writing)
	g.writing = 0
}

// pause has the guest stand still, with nothing in flight.
func (s *site) pause(g *guest) {
	if g.writing != 0 {
		s.write(g)
	}
	g.still = true
}

// swapped is the second half of a swap, which QEMU makes whether the daemon lives or not.
func (g *guest) swapped() {
	if g.ending != "" {
		g.maps[g.ending].on = false
		g.ending = ""
	}
}

// begin has the guest run in a new process.
func (s *site) begin(g *guest) {
	s.processes++
	g.process, g.maps, g.ending, g.writing, g.still = s.processes, map[string]*bitmap{}, "", 0, false
}

// dies ends the process of a guest.
func (g *guest) dies() {
	g.process, g.maps, g.ending, g.writing, g.still = 0, map[string]*bitmap{}, "", 0, false
}

func mapName(generation, round int) string { return fmt.Sprintf("g%d-r%d", generation, round) }
