// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/test/lab"
)

func TestDoctorNamesWhatAppArmorKeepsGuestsFrom(t *testing.T) {
	link := filepath.Join(t.TempDir(), "overlays")
	if err := os.Symlink("/usr/share", link); err != nil {
		t.Fatal(err)
	}
	fake := hvtest.New()
	fake.AddPool(hv.PoolInfo{Name: "odd", Type: "dir", Path: "/etc", Active: true})
	fake.AddPool(hv.PoolInfo{Name: "good", Type: "dir", Path: "/var", Active: true})
	d := &Doctor{Cfg: &config.Config{OverlayDir: link, SaveDir: t.TempDir()}, HV: fake}
	confined := hv.About{SecurityModels: []string{"apparmor", "dac"}, GivesImages: true, RemembersOwners: true}
	checks := d.security(t.Context(), confined)
	if !found(checks, "security", "fail", "the overlays") || !found(checks, "security", "warn", "pool odd") {
		t.Errorf("%+v, want overlay_dir and the pool odd", checks)
	}
	if found(checks, "security", "warn", "pool good") || found(checks, "security", "fail", "saved") {
		t.Errorf("%+v has directories that libvirt makes rules for", checks)
	}
	confined.SecurityModels = []string{"dac"}
	if checks := d.security(t.Context(), confined); len(checks) != 1 {
		t.Errorf("without AppArmor: %+v", checks)
	}
}

func TestLibvirtsHelperMakesNoRuleForWhatDoctorNames(t *testing.T) {
	const helper = "/usr/lib/libvirt/virt-aa-helper"
	if _, err := os.Stat(helper); err != nil {
		lab.SkipOrFail(t, "the test needs "+helper+" (package libvirt-daemon): "+err.Error())
	}
	const id = "5f6d9a53-0000-4000-8000-000000000001"
	makes := func(file string) bool {
		cmd := exec.CommandContext(t.Context(), helper, "--dryrun", "--replace", "--uuid", "libvirt-"+id, "-F", file)
		cmd.Stdin = strings.NewReader("<domain type='qemu'><name>x</name><uuid>" + id + "</uuid><memory>65536</memory><os><type arch='x86_64' machine='pc'>hvm</type></os></domain>")
		return cmd.Run() == nil
	}
	for _, beginning := range unprofiled {
		if file := beginning + "x/overlay.qcow2"; makes(file) {
			t.Errorf("it makes a rule for %s", file)
		}
	}
	for _, dir := range []string{"/data", "/mnt", "/opt", "/run/x", "/srv", "/tmp", "/usr/local/x", "/var/lib/volferry/overlays", "/var/tmp"} {
		if !makes(dir + "/overlay.qcow2") {
			t.Errorf("it makes no rule for files in %s", dir)
		}
	}
}
