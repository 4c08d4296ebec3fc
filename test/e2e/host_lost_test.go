// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// A host that is lost for good in the middle of a move, with its disk and so with the overlay. The
// operator fences it and says at the registry which copy to keep. What is on the storage then is
// what the page lose-a-host.md says.

// lostIn is a moment that the host is lost in.
type lostIn struct {
	moment
	keep string // the copy
	// torn: the copy is kept only with --even-if-corrupt.
	torn bool
	// all: the copy has what the guest flushed, up to the end. Else it has what was
	// acknowledged before the request, and perhaps some of the rest.
	all bool
	// shared: the overlay is on storage that outlives the host, and is folded by hand.
	shared bool
}

func TestTheCopyThatIsKeptOfALostHostHoldsWhatIsPromised(t *testing.T) {
	crash.LeftToTestCrash(t)
	for name, c := range map[string]lostIn{
		"start":             {moment: moments["start"], keep: api.KeepSrc},
		"copy":              {moment: moments["copy"], keep: api.KeepSrc},
		"complete, src":     {moment: moments["complete"], keep: api.KeepSrc},
		"complete, dst":     {moment: moments["pivot"], keep: api.KeepDst, torn: true, all: true},
		"after the switch":  {moment: moments["after the switch"], keep: api.KeepDst, torn: true, all: true},
		"cancel":            {moment: moments["cancel"], keep: api.KeepSrc},
		"copy, shared":      {moment: moments["copy"], keep: api.KeepSrc, all: true, shared: true},
		"stopped, start":    {moment: moments["stopped, start"], keep: api.KeepSrc, all: true},
		"stopped, copy":     {moment: moments["stopped, copy"], keep: api.KeepSrc, all: true},
		"stopped, complete": {moment: moments["stopped, complete"], keep: api.KeepDst, torn: true, all: true},
		"stopped, cancel":   {moment: moments["stopped, cancel"], keep: api.KeepSrc, all: true},
	} {
		t.Run(name, func(t *testing.T) { c.test(t) })
	}
}

func (c lostIn) test(t *testing.T) {
	g := c.guest(t)
	h := g.host
	overlays := filepath.Join(h.Dir, "overlays")
	if c.shared {
		if err := os.Mkdir(overlays, 0o755); err != nil { //nolint:gosec // QEMU's user passes
			t.Fatal(err)
		}
		h.Flags = append(h.Flags, "--overlay-dir", overlays, "--overlay-dir-shared")
	}
	asOf := time.Now()
	id := c.dies(t, g)
	g.loseHost(t)

	registry := h.RegistryCaller()
	ask := func(args ...string) error {
		_, err := registry.Ctl(t.Context(), append([]string{"-o", "json"}, args...)...)
		return err
	}
	must := func(args ...string) {
		t.Helper()
		if err := ask(args...); err != nil {
			t.Fatal(err)
		}
	}
	abandon := []string{"migration", "abandon", id, "--keep", c.keep, "--reason", "the host is lost"}
	if err := ask(abandon...); err == nil {
		t.Error("the migration of a host that nobody has fenced is given up")
	}
	must("host", "fence", "lab", "--evidence", "the test has killed all of it", "--even-if-up")
	if c.torn {
		mustHaveFailed(t, ask(abandon...), api.CodeCopyNotVerified.ExitStatus(), api.CodeCopyNotVerified)
		abandon = append(abandon, "--even-if-corrupt")
	}
	if c.shared {
		foldByHand(t, registry, overlays, id)
	}
	must(abandon...)

	m, err := site.Get[api.Migration](t.Context(), registry, "migration", "migration", "show", id)
	if err != nil {
		t.Fatal(err)
	}
	kept, want := m.Src, api.MigrationCancelled
	if c.keep == api.KeepDst {
		kept, want = m.Dst, api.MigrationCompleted
	}
	v, err := site.Get[api.Volume](t.Context(), registry, "volume", "volume", "show", m.VolumeID)
	if err != nil {
		t.Fatal(err)
	}
	if m.State != want || v.Location.Path != kept.Path {
		t.Errorf("after %q was kept the migration is %s and the volume at %s", c.keep, m.State, v.Location.Path)
	}
	for _, a := range v.Attachments {
		must("attachment", "delete", a.ID, "--force")
	}
	opts := []lab.CheckOption{lab.PowerWasCutAt(g.cuts...)}
	if !c.all {
		opts = append(opts, lab.IsAsOf(asOf))
	}
	report, err := lab.Check(t.Context(), lab.Volume{Path: kept.Path, Format: string(kept.Format)}, g.History("vda"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Err(); err != nil {
		t.Errorf("the kept copy at %s: %v", kept.Path, err)
	}
	t.Logf("%d writes acknowledged", report.Acked)
}

var lostHostCommands = regexp.MustCompile("(?s)## An overlay of a host that is lost.*?```sh\n(.*?)```.*?```sh\n(.*?)```")

// foldByHand is what recover.md says of the overlay of a host that is lost.
func foldByHand(t *testing.T, registry site.Caller, overlays, id string) {
	t.Helper()
	m, err := site.Get[api.Migration](t.Context(), registry, "migration", "migration", "show", id)
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(overlays, "*", id+".qcow2"))
	if err != nil || len(found) != 1 {
		t.Fatalf("overlays %v, %v: want the one of the migration in the directory of the host", found, err)
	}
	steps := recoverCommands(t, lostHostCommands)
	named := strings.NewReplacer("OVERLAY", found[0], "SOURCE", m.Src.Path, "FORMAT", string(m.Src.Format))
	if looked := shell(t, t.TempDir(), named.Replace(steps[1])); !strings.Contains(looked, found[0]+"\n") || !strings.Contains(looked, m.Src.Path+"\n") {
		t.Errorf("the command of recover.md does not show both images: %s", looked)
	}
	shell(t, t.TempDir(), named.Replace(steps[2]))
}

// loseHost is called when the daemon has died. Nothing of the host is there any more but what is
// on the storage.
func (g *guest) loseHost(t *testing.T) {
	t.Helper()
	h := g.host
	if g.state(t) != "shut off" {
		g.crashes(t)
	}
	if err := h.Libvirtd.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(h.State()); err != nil {
		t.Fatal(err)
	}
	g.settled, g.instance = true, api.Instance{} // there is nobody to ask about it
	t.Cleanup(func() {
		if err := h.Libvirtd.Restart(context.WithoutCancel(t.Context())); err != nil { // the guest is taken away by it
			t.Error(err)
		}
	})
}
