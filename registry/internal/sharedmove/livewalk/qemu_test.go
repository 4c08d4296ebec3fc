// SPDX-License-Identifier: Apache-2.0

package livewalk_test

import "fmt"

// blocks is the number of blocks of the volume.
const blocks = 6

// image is the content of one end of a volume: for each block the number of the write that made it,
// or unwritten.
type image [blocks]int

const unwritten = -1

// bits has a bit for each block.
type bits uint8

// bitmap is a bitmap in a QEMU. It is lost with the process.
type bitmap struct {
	on   bool
	bits bits
}

// guest is an instance on its host, with its QEMU.
type guest struct {
	name string
	// process is the number of its process, 0 if it is off. still means that the process is paused,
	// memory that its RAM is in a file.
	process       int
	still, memory bool
	// It does not start by itself while it is tracked and was off, or during the pause.
	heldOff, inPause bool
	at               string
	maps             map[string]*bitmap
	// ending is the bitmap that QEMU is about to disable, the second half of a swap.
	ending string
	// writing is the number of a half-finished write to block: its data is on the volume and its
	// bit is not set yet; 0 if there is none.
	writing, block int
}

func (g *guest) guarded() bool { return g.heldOff || g.inPause }

func (g *guest) runs() bool { return g.process != 0 && !g.still }

// write does half of a write: the data is on the volume, or the bit is set and the guest gets its
// answer.
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

// pause pauses the guest, with no write in flight.
func (s *site) pause(g *guest) {
	if g.writing != 0 {
		s.write(g)
	}
	g.still = true
}

// swapped is the second half of a swap, which QEMU does even without the daemon.
func (g *guest) swapped() {
	if g.ending != "" {
		g.maps[g.ending].on = false
		g.ending = ""
	}
}

// begin starts the guest in a new process.
func (s *site) begin(g *guest) {
	s.processes++
	g.process, g.maps, g.ending, g.writing, g.still = s.processes, map[string]*bitmap{}, "", 0, false
}

func (g *guest) dies() {
	g.process, g.maps, g.ending, g.writing, g.still = 0, map[string]*bitmap{}, "", 0, false
}

func mapName(generation, round int) string { return fmt.Sprintf("g%d-r%d", generation, round) }
