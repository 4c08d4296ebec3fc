// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/test/lab"
)

func TestDoctorNamesWhatSELinuxKeepsGuestsFrom(t *testing.T) {
	if os.Geteuid() != 0 {
		lab.SkipOrFail(t, "the test needs root, to label directories")
	}
	labelled := func(label string) string {
		t.Helper()
		dir := t.TempDir()
		if label == "" {
			return dir
		}
		if err := unix.Setxattr(dir, labelAttribute, []byte(label+"\x00"), 0); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	fake := hvtest.New()
	fake.AddPool(hv.PoolInfo{Name: "odd", Type: "dir", Path: labelled("unconfined_u:object_r:default_t:s0"), Active: true})
	fake.AddPool(hv.PoolInfo{Name: "good", Type: "dir", Path: labelled("system_u:object_r:virt_image_t:s0"), Active: true})
	fake.AddPool(hv.PoolInfo{Name: "bare", Type: "dir", Path: labelled(""), Active: true})
	cfg := &config.Config{OverlayDir: labelled("system_u:object_r:tmp_t:s0"), SaveDir: filepath.Join(t.TempDir(), "absent")}
	d := &Doctor{Cfg: cfg, HV: fake}
	checks := d.security(t.Context(), hv.About{SecurityModels: []string{"selinux", "dac"}, GivesImages: true, RemembersOwners: true})
	if !found(checks, "security", "fail", "the overlays") || !found(checks, "security", "warn", "pool odd") || !found(checks, "security", "warn", "cannot be read") {
		t.Errorf("%+v, want the overlays, the pool odd, and a label that cannot be read", checks)
	}
	if found(checks, "security", "warn", "pool good") || found(checks, "security", "fail", "saved") {
		t.Errorf("%+v has directories that guests reach, or that are absent", checks)
	}
	if checks := d.security(t.Context(), hv.About{SecurityModels: []string{"dac"}, GivesImages: true, RemembersOwners: true}); len(checks) != 1 {
		t.Errorf("without SELinux: %+v", checks)
	}
}
