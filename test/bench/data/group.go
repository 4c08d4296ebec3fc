// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/volferry/volferry/test/lab/workload"
)

// group is the contenders that are measured against each other.
type group struct {
	name       string
	writer     writer
	contenders []contender
}

// title says what the contenders move.
func (g group) title() string {
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
