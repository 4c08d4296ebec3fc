// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// anew are the commands that a message says behind these words.
var anew = regexp.MustCompile("Attach it anew[^`]*(.*)$")

// Somebody has taken a disk out of the definition of a guest that is off, or put it elsewhere. What
// the refusal of a repair says to type brings it back, without an editor.
func TestADiskThatWasTakenOutOfADefinitionComesBackAsTheMessageSays(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw), h.diskIn(t, a, api.FormatQcow2))
	for _, c := range []struct{ name, target, to string }{
		{"a volume", "vdb", ""},
		{"the root", "vda", ""},
		{"a volume that is at another device", "vdb", "vdd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := g.volume(t, c.target)
			h.virsh(t, "detach-disk", g.Name, c.target, "--config")
			if c.to != "" {
				h.virsh(t, "attach-disk", g.Name, v.Location.Path, c.to, "--config", "--subdriver", string(v.Location.Format))
			}
			said := h.refuses(t, api.CodeChainChanged, "instance", "repair", g.Name).Message
			commands := anew.FindStringSubmatch(said)
			if commands == nil {
				t.Fatalf("it names no commands: %s", said)
			}
			for i, line := range strings.Split(commands[1], "`") {
				if i%2 == 1 {
					g.types(t, line, t.TempDir())
				}
			}
			h.ctl(t, "instance", "repair", g.Name)
			if now := g.volume(t, c.target); len(now.Attachments) != 1 || now.Attachments[0].Device != c.target || now.Location != v.Location {
				t.Errorf("volume = %+v", now)
			}
			if c.target == "vda" {
				g.disks[0].Serial = v.ID[:20] // as of every disk that is attached
			} else {
				g.disks[1].Serial = v.ID[:20]
			}
		})
	}
	g.slots = g.persistentSlots(t) // but for where they are, they are new disks
	g.boot(t)
	g.assertSettledAndGoOn(t)
}
