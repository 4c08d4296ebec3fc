// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// The page that is followed, and its section.
const (
	bootVolumePage  = "docs/how-to/change-a-boot-volume.md"
	snapshotSection = "Go back to a snapshot of a boot volume"
)

// A guest whose license hangs on its machine goes back in time by the commands of
// the page and no others: another content, and the same machine.
func TestGuestGoesBackToASnapshotOfItsBootVolumeAsThePageSays(t *testing.T) {
	leftToTestE2E(t)
	h := sharedHost(t)
	fast := h.dirPool(t, "fast")
	t.Cleanup(func() { h.removePool(t, "fast") })
	h.dirPool(t, "slow")
	t.Cleanup(func() { h.removePool(t, "slow") })
	g := h.defineGuest(t, h.diskIn(t, fast, api.FormatRaw), h.diskIn(t, fast, api.FormatRaw))
	g.settled = true // it does not end with the volume that it began with
	g.addNetwork(t)
	g.boot(t)
	g.adopt(t)
	image, snapshot := g.disks[0].Path, filepath.Join(fast, g.Name+"-before-update.raw")
	blocks := sectionOf(t, bootVolumePage, snapshotSection)
	if len(blocks) != 3 {
		t.Fatalf("%s shows %d times what to do, want: stopped, running, back", bootVolumePage, len(blocks))
	}
	stopped, running, back := blocks[0], blocks[1], blocks[2]
	a := g.attachment(t, "vda").ID
	r := &site.Reader{
		At:     h.Caller,
		Others: map[string]func(context.Context, string) error{"cp": runLine},
		Names:  []string{"/srv/fast/win-vda.raw", image, "/srv/fast", fast, "start A ", "start " + a + " ", "cancel A", "cancel " + a, "on host hv1", "on host lab", "win", g.Name},
	}
	do := func(b site.Block) {
		t.Helper()
		if err := r.Do(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}

	g.quiesce(t)
	do(running)
	holds(t, snapshot, g.History("vda"))
	if err := os.Remove(snapshot); err != nil {
		t.Fatal(err)
	}
	g.write(t)
	g.quiesce(t)
	before, machine := g.History("vda"), g.machine(t)
	do(stopped)
	g.seesItsDisks(t)
	g.write(t)
	g.quiesce(t)
	after := g.History("vda")

	do(back)
	g.seesItsDisks(t)
	holds(t, snapshot, before)
	holds(t, image, after)
	if diff := cmp.Diff(strings.ReplaceAll(machine, image, snapshot), g.machine(t)); diff != "" {
		t.Errorf("the machine is another one (-before +after):\n%s", diff)
	}
	if modes := g.openModes(t, snapshot); !slices.Contains(modes, "write") {
		t.Errorf("QEMU has the copy open for %v", modes)
	}
	g.assertHoldsOnlyItsDisks(t)
	h.ctl(t, "instance", "stop", g.Name, "--force")
	g.serialFollowsTheVolume(t, g.Name+"-before-update", g.volumeName("vda"))
	h.ctl(t, "volume", "delete", g.Name+"-before-update", "--yes")
	holds(t, image, after)
	g.assertNoLeftovers(t, "shut off")
}

// serialFollowsTheVolume exchanges the root volumes of a stopped instance whose disk
// has the id of its volume for a serial.
func (g *guest) serialFollowsTheVolume(t *testing.T, from, to string) {
	t.Helper()
	id := func(volume string) string { return get[api.Volume](t, g.host, "volume", "volume", "show", volume).ID }
	serial := func(text string) string { return "<serial>" + text + "</serial>" }
	before := strings.Replace(g.machine(t), serial(g.disks[0].Serial), serial(id(from)), 1)
	file := filepath.Join(t.TempDir(), "domain.xml")
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	g.host.virsh(t, "define", file)
	src := get[api.Volume](t, g.host, "volume", "volume", "show", from).Location.Path
	g.host.ctl(t, "volume", "detach", from, g.Name)
	g.host.ctl(t, "volume", "attach", to, g.Name, "--root")
	want := strings.NewReplacer(id(from), id(to), src, g.volume(t, "vda").Location.Path).Replace(before)
	if diff := cmp.Diff(want, g.machine(t)); diff != "" {
		t.Errorf("the machine with the other root volume (-want +got):\n%s", diff)
	}
}

// addNetwork gives the domain a network card, by whose address software knows a
// machine.
func (g *guest) addNetwork(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "interface.xml")
	if err := os.WriteFile(file, []byte("<interface type='user'><model type='virtio'/></interface>"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.host.virsh(t, "attach-device", g.Name, file, "--config")
	mustContain(t, g.machine(t), "<mac address=")
}

// machine is the persistent definition.
func (g *guest) machine(t *testing.T) string {
	t.Helper()
	return g.host.virsh(t, "dumpxml", g.Name, "--inactive")
}

// holds claims that a raw image holds what the history says, and nothing that came
// later.
func holds(t *testing.T, image string, h *lab.History) {
	t.Helper()
	r, err := lab.Check(t.Context(), lab.Volume{Path: image, Format: "raw"}, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Errorf("%s: %v", image, err)
	}
	if r.Acked == 0 {
		t.Errorf("%s: nothing was ever acknowledged", image)
	}
	t.Logf("%s: %d writes acknowledged, %d found", filepath.Base(image), r.Acked, r.Found)
}

// sectionOf are the blocks of a section of a page.
func sectionOf(t *testing.T, path, heading string) []site.Block {
	t.Helper()
	blocks, err := site.ReadPage(path)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(blocks, func(b site.Block) bool { return b.Heading != heading })
}

// runLine runs a command that is not Volferry's.
func runLine(ctx context.Context, line string) error {
	words := strings.Fields(line)
	if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil { //nolint:gosec // the page is ours
		return fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return nil
}
