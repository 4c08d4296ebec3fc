// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// startedAgain begins a move of a guest that AppArmor confines, and stops and starts the guest.
// libvirt then denies the guest writes to the source.
func startedAgain(t *testing.T) *move {
	t.Helper()
	lab.RequireAppArmor(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	g.destroy(t)
	g.boot(t)
	return v
}

func TestACancelThatAppArmorDeniesLeavesTheMoveToItsEnd(t *testing.T) {
	v := startedAgain(t)
	g, h := v.g, v.g.host
	refused := h.refuses(t, api.CodePermissionDenied, v.cancelArgs()...)
	mustContain(t, refused.Message, "migration copy "+v.ID, "migration complete "+v.ID)
	v.copy(t)
	h.refuses(t, api.CodePermissionDenied, v.cancelArgs()...)
	v.complete(t)
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}

func TestACancelThatAppArmorDeniesGoesOnWithoutTheRule(t *testing.T) {
	v := startedAgain(t)
	g, h := v.g, v.g.host
	refused := h.refuses(t, api.CodePermissionDenied, v.cancelArgs()...)
	advised := regexp.MustCompile(`\((sed -i [^)]*)\)`).FindStringSubmatch(refused.Message)
	if advised == nil {
		t.Fatalf("%q has no command", refused.Message)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", advised[1]).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", advised[1], err, out)
	}
	v.cancel(t)
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}

// Without it no test could tell that nothing was denied.
func TestTheKernelLogsWhatAConfinedGuestIsDenied(t *testing.T) {
	lab.RequireAppArmor(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	if denials := lab.DeniedTo(t, "libvirt-"+g.UUID, "/etc/shadow"); len(denials) != 1 {
		t.Errorf("the kernel's log has %q, want one denial", denials)
	}
	g.assertSettled(t)
}

// libvirt makes all rules of the guest again at the end of a block job, and when a disk leaves it.
func TestTheVolumesOfAConfinedGuestMoveOneAfterTheOther(t *testing.T) {
	lab.RequireAppArmor(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw), h.diskIn(t, a, api.FormatQcow2))
	other := h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	for _, args := range [][]string{
		{"volume", "migrate", g.volumeName("vdb"), "--to-pool", "b"},
		{"volume", "migrate", g.volumeName("vdb"), "--to-pool", "b", "--dry-run"},
		{"migration", "start", g.attachment(t, "vdb").ID, "--to-pool", "b"},
		{"volume", "detach", g.volumeName("vdb"), g.Name},
		{"volume", "attach", other.name, g.Name},
	} {
		refused := h.refuses(t, api.CodeInstanceBusy, args...)
		mustContain(t, refused.Message, "migration watch "+v.ID)
	}
	v.copy(t)
	v.cancel(t)
	g.assertSettledAndGoOn(t)

	h.ctl(t, "instance", "migrate", g.Name, "--to-pool", "b")
	for _, disk := range []string{"vda", "vdb"} {
		if got := g.volume(t, disk).Location.Pool; got != "b" {
			t.Errorf("disk %s is in pool %s, want b", disk, got)
		}
	}
	g.assertSettled(t)
}

// The profiles or the module are loaded again while guest and daemon run under them.
func TestThePackageIsInstalledAgainInAMoveOfAConfinedGuest(t *testing.T) {
	lab.RequireConfined(t)
	h := startHost(t)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	for _, end := range []func(*move, *testing.T){(*move).cancel, (*move).finish} {
		v := g.start(t, "vda", "--to-pool", "b")
		g.writes(t)
		packages, err := filepath.Glob("../../dist/volferryd_*.deb")
		if err != nil || len(packages) != 1 {
			t.Fatal(packages, err)
		}
		tool(t, "dpkg", "--install", packages[0])
		g.writes(t)
		h.restartDaemon(t)
		v.copy(t)
		end(v, t)
		g.assertSettledAndGoOn(t)
	}
	g.assertSettled(t)
}
