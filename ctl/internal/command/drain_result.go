// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"

	"github.com/volferry/volferry/internal/api"
)

// drainResult says how a drain ended, and why its pool may not be taken away yet, "" if it may.
func drainResult(d *api.Drain) (line, stays string) {
	moved, left, readers := 0, 0, 0
	for i := range d.Volumes {
		switch v := &d.Volumes[i]; {
		case v.ReadsBase():
			readers++
		case v.State == api.DrainVolumeMoved:
			moved++
		default:
			left++
		}
	}
	counts := fmt.Sprintf("%s moved", api.Count(moved, "volume"))
	switch {
	case d.State == api.DrainStopped:
		line = fmt.Sprintf("The drain of pool %s was stopped: %s, %d left", d.Pool, counts, left)
	case left+readers > 0:
		line = fmt.Sprintf("Pool %s is not drained: %s to %s, %d left", d.Pool, counts, d.ToPool, left)
	default:
		line = fmt.Sprintf("Drained pool %s to %s: %s, %d left", d.Pool, d.ToPool, counts, left)
	}
	if readers > 0 {
		line += "; " + readBases(readers)
	}
	switch {
	case left > 0:
		stays = fmt.Sprintf("pool %s is not empty: %s not moved", d.Pool, api.Count(left, "volume"))
		if readers > 0 {
			stays += ", and " + readBases(readers)
		}
	case readers > 0:
		stays = fmt.Sprintf("pool %s is still needed: %s", d.Pool, readBases(readers))
	}
	return line + ".", stays
}

// readBases says that so many volumes need a pool that they are not in.
func readBases(n int) string {
	if n == 1 {
		return "1 volume elsewhere reads a base image there"
	}
	return api.Count(n, "volume") + " elsewhere read base images there"
}

// drainVolumeState is the state of a volume of a drain, for people.
func drainVolumeState(v *api.DrainVolume) string {
	if v.ReadsBase() {
		return "reads base"
	}
	return v.State
}

// inDrain is how many volumes a drain moves, or shall.
func inDrain(d *api.Drain) int {
	n := 0
	for i := range d.Volumes {
		if !d.Volumes[i].ReadsBase() {
			n++
		}
	}
	return n
}
