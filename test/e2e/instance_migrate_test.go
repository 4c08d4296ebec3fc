// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// TestAllVolumesOfARunningGuestMoveByOneCommand, also one that it only reads, on which
// libvirt puts no overlay.
func TestAllVolumesOfARunningGuestMoveByOneCommand(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw), h.diskIn(t, a, api.FormatQcow2))
	read := g.attach(t, h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw)), "--mode", "ro")
	sum := sumOf(t, read.disk.Path)

	e := h.refuses(t, api.CodeNotFound, "instance", "migrate", g.Name, "--to-pool", "none")
	mustContain(t, e.Message, g.volumeName("vda"), g.volumeName("vdb"), read.name)
	var plan struct {
		Volumes []struct {
			State string
			Plan  api.MigrationPlan
		}
	}
	out := h.ctl(t, "-o", "json", "instance", "migrate", g.Name, "--to-pool", "b", "--dry-run")
	if err := json.Unmarshal(unwrap(t, out, "instance_plan"), &plan); err != nil || len(plan.Volumes) != 3 {
		t.Fatalf("the plan is %s (%v), want three volumes", out, err)
	}
	for i, method := range []string{"overlay", "overlay", "mirror"} {
		if v := plan.Volumes[i]; v.State != "pending" || v.Plan.Method != method || v.Plan.NeededBytes == nil {
			t.Errorf("volume %d: %+v, want it pending, by %s", i, v, method)
		}
	}

	moved := get[[]api.Migration](t, h, "migrations", "instance", "migrate", g.Name, "--to-pool", "b", "--delete-source=false")
	if len(moved) != 3 {
		t.Errorf("%d migrations, want 3: %+v", len(moved), moved)
	}
	for _, m := range moved {
		g.noteMove(t, m)
	}
	g.writes(t)
	read.assertAttached(t)
	for _, name := range []string{g.volumeName("vda"), g.volumeName("vdb"), read.name} {
		if v := get[api.Volume](t, h, "volume", "volume", "show", name); v.Location.Pool != "b" || filepath.Dir(v.Location.Path) != b {
			t.Errorf("volume %s is at %+v, want pool b", name, v.Location)
		}
	}
	at := read.show(t).Location.Path
	if got := sumOf(t, at); got != sum {
		t.Errorf("the volume that is only read was %s and is %s", sum, got)
	}
	if modes := g.openModes(t, at); len(modes) != 1 || modes[0] != "read" {
		t.Errorf("QEMU has the image of a volume that is attached ro open for %v", modes)
	}
	if again := get[[]api.Migration](t, h, "migrations", "instance", "migrate", g.Name, "--to-pool", "b"); len(again) != 0 {
		t.Errorf("a second run moved %+v", again)
	}
	g.assertSettled(t)
}

// unwrap is what a document has under a noun.
func unwrap(t *testing.T, document, noun string) []byte {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(document), &members); err != nil {
		t.Fatal(err)
	}
	return members[noun]
}
