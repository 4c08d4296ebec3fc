// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// drainResult returns a line about a drain's end, and why its pool must not be removed yet, or "".
func drainResult(d *api.Drain) (line, stays string) {
	moved, left := 0, 0
	needs := poolNeeds{uses: d.Uses}
	for i := range d.Volumes {
		switch v := &d.Volumes[i]; {
		case v.Outside():
			needs.add(v.Error)
		case v.State == api.DrainVolumeMoved:
			moved++
		default:
			left++
		}
	}
	counts := fmt.Sprintf("%s moved", humanize.Count(moved, "volume"))
	switch {
	case d.State == api.DrainStopped:
		line = fmt.Sprintf("The drain of pool %s was stopped: %s, %d left", d.Pool, counts, left)
	case left > 0 || needs.any():
		line = fmt.Sprintf("Pool %s is not drained: %s to %s, %d left", d.Pool, counts, d.ToPool, left)
	default:
		line = fmt.Sprintf("Drained pool %s to %s: %s, %d left", d.Pool, d.ToPool, counts, left)
	}
	if needs.any() {
		line += "; " + needs.text()
	}
	switch {
	case left > 0:
		stays = fmt.Sprintf("pool %s is not empty: %s not moved", d.Pool, humanize.Count(left, "volume"))
		if needs.any() {
			stays += ", and " + needs.text()
		}
	case needs.any():
		stays = fmt.Sprintf("pool %s is still needed: %s", d.Pool, needs.text())
	}
	return line + ".", stays
}

type poolNeeds struct {
	readers, below int
	uses           []api.PoolUse
}

func (n *poolNeeds) add(why *api.Error) {
	if v := (api.DrainVolume{Error: why}); v.ReadsBase() {
		n.readers++
	} else {
		n.below++
	}
}

func (n *poolNeeds) any() bool { return n.readers+n.below+len(n.uses) > 0 }

func (n *poolNeeds) text() string {
	var parts []string
	switch {
	case n.readers == 1:
		parts = append(parts, "1 volume elsewhere reads a base image there")
	case n.readers > 1:
		parts = append(parts, humanize.Count(n.readers, "volume")+" elsewhere read base images there")
	}
	switch {
	case n.below == 1:
		parts = append(parts, "1 volume outside the pool has an image below its path")
	case n.below > 1:
		parts = append(parts, humanize.Count(n.below, "volume")+" outside the pool have images below its path")
	}
	files, linked, unknown := 0, 0, 0
	for i := range n.uses {
		switch u := &n.uses[i]; {
		case u.Unknown != "":
			unknown++
		case u.Volume != "":
			linked++
		default:
			files++
		}
	}
	switch {
	case linked == 1:
		parts = append(parts, "1 image of a volume elsewhere is a link into the pool")
	case linked > 1:
		parts = append(parts, humanize.Count(linked, "image")+" of volumes elsewhere are links into the pool")
	}
	switch {
	case files == 1:
		parts = append(parts, "a domain needs 1 file there")
	case files > 1:
		parts = append(parts, "domains need "+humanize.Count(files, "file")+" there")
	}
	if unknown > 0 {
		parts = append(parts, "it is not known which files there all domains need")
	}
	return strings.Join(parts, ", and ")
}

func (n *poolNeeds) lines() []string {
	lines := make([]string, 0, len(n.uses))
	for i := range n.uses {
		lines = append(lines, "Needed: "+n.uses[i].Text()+".")
	}
	return lines
}

func drainVolumeState(v *api.DrainVolume) string {
	switch {
	case v.ReadsBase():
		return "reads base"
	case v.Outside():
		return "below"
	}
	return v.State
}

func inDrain(d *api.Drain) int {
	n := 0
	for i := range d.Volumes {
		if !d.Volumes[i].Outside() {
			n++
		}
	}
	return n
}
