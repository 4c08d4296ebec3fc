// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/site"
)

// volumePlan is what the plan of a move of an instance says of one of its volumes.
type volumePlan struct {
	VolumeName string `json:"volume_name"`
	State      string
	Plan       api.MigrationPlan
	Error      *api.Error
}

// instancePlan is what `instance migrate --dry-run` prints, also where it refuses the move.
func (g *guest) instancePlan(t *testing.T, pool string) (volumes []volumePlan) {
	t.Helper()
	out, err := g.host.Ctl(t.Context(), "-o", "json", "instance", "migrate", g.Name, "--to-pool", pool, "--dry-run")
	var failed *site.CtlError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	var plan struct{ Volumes []volumePlan }
	if err := json.Unmarshal(unwrap(t, out, "instance_plan"), &plan); err != nil || len(plan.Volumes) != len(g.disks)+len(g.plugged) {
		t.Fatalf("the plan is %s (%v), want one of all volumes", out, err)
	}
	return plan.Volumes
}

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
	plan := g.instancePlan(t, "b")
	for i, method := range []string{"overlay", "overlay", "mirror"} {
		if v := plan[i]; v.State != "pending" || v.Plan.Method != method || v.Plan.NeededBytes == nil {
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

// TestAllVolumesOfAStoppedInstanceMoveByOneCommandOrNone does, and the one that cannot is named
// with the reason.
func TestAllVolumesOfAStoppedInstanceMoveByOneCommandOrNone(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw), h.diskIn(t, a, api.FormatQcow2), h.diskIn(t, a, api.FormatRaw))
	migrate := []string{"instance", "migrate", g.Name, "--to-pool", "b"}
	same := h.unchangedByPlans(t, g.volumeName("vdb"), a, b)

	path := g.disks[1].Path
	tool(t, "qemu-img", "snapshot", "-c", "before-upgrade", path)
	for _, args := range [][]string{append(migrate, "--dry-run"), migrate} {
		e := h.refuses(t, api.CodeUnsupportedDisk, args...)
		mustContain(t, e.Message, g.Name, "nothing was done", g.volumeName("vdb")+" (vdb)", "qemu-img snapshot -d NAME "+path)
	}
	for i, v := range g.instancePlan(t, "b") {
		want := "pending"
		if v.VolumeName == g.volumeName("vdb") {
			want = "refused"
		}
		if v.VolumeName != g.volumeName(target(i)) || v.State != want || (v.Error != nil) != (want == "refused") {
			t.Errorf("volume %s is %s (%v), want %s %s", v.VolumeName, v.State, v.Error, g.volumeName(target(i)), want)
		}
	}
	tool(t, "qemu-img", "snapshot", "-d", "before-upgrade", path)

	for i, v := range g.instancePlan(t, "b") {
		if v.State != "pending" || v.Error != nil || v.Plan.Method != api.MethodOverlay || v.Plan.NeededBytes == nil || v.Plan.FreeBytes == nil {
			t.Errorf("volume %d: %+v, want it pending, by overlay, with its size and the room for it", i, v)
		}
	}
	same()
	g.assertSettled(t)

	moved := get[[]api.Migration](t, h, "migrations", append(migrate, "--bandwidth", "64MiB/s", "--delete-source")...)
	if len(moved) != len(g.disks) {
		t.Errorf("%d migrations, want %d: %+v", len(moved), len(g.disks), moved)
	}
	for _, m := range moved {
		g.noteMove(t, m)
		if exists(t, m.Src.Path) || m.BandwidthBytesPerSecond != 64<<20 {
			t.Errorf("%s is there: %t, and the bandwidth was %d", m.Src.Path, exists(t, m.Src.Path), m.BandwidthBytesPerSecond)
		}
	}
	for i := range g.disks {
		if l := g.volume(t, target(i)).Location; l.Pool != "b" || filepath.Dir(l.Path) != b {
			t.Errorf("disk %s is at %+v, want pool b", target(i), l)
		}
	}
	if again := get[[]api.Migration](t, h, "migrations", migrate...); len(again) != 0 {
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
