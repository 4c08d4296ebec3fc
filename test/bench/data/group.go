// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/volferry/volferry/test/lab/workload"
)

// setting is what a volume holds, and where it goes.
type setting struct {
	fill  uint64 // percent of its blocks
	disks uint64 // 1: source and destination are on one; 2: each is on its own
}

// possible are the contenders that can move so: a clone does not leave its disk.
func (at setting) possible(all []contender) []contender {
	return slices.DeleteFunc(slices.Clone(all), func(c contender) bool { return c.reflink && at.disks == 2 })
}

// group is the contenders that are measured against each other.
type group struct {
	name       string
	writer     writer
	setting    setting
	contenders []contender
}

// has reports whether a move is one of the group's.
func (g group) has(r record) bool {
	return r.Group == g.name && r.FillPercent == g.setting.fill && r.Disks == g.setting.disks
}

// reference is the contender with which the others are compared: Volferry as it is without flags.
func (g group) reference() string {
	if g.name == stopped {
		return "volferry-stopped"
	}
	return "volferry"
}

// title says what the contenders move.
func (g group) title() string {
	where := "source and destination on one disk"
	if g.setting.disks == 2 {
		where = "source and destination on a disk each"
	}
	return fmt.Sprintf("%s; %d %% full, %s", g.who(), g.setting.fill, where)
}

// who says who has the volume.
func (g group) who() string {
	switch {
	case g.name == stopped:
		return "A volume that no guest has"
	case g.writer.load == nil:
		return "A running guest that does not write"
	case g.writer.mix.Sequential > 0:
		return fmt.Sprintf("A guest that writes %d KiB at a time, one after the other, without flushes", g.writer.mix.Sequential*workload.BlockSize>>10)
	case g.writer.mix.Flush == 100:
		return fmt.Sprintf("A guest that writes 4 KiB at random, a flush after each, depth %d", g.writer.load.Depth)
	}
	return fmt.Sprintf("A guest that writes 4 KiB at random, a flush after %d %% of the writes, depth %d", g.writer.mix.Flush, g.writer.load.Depth)
}
