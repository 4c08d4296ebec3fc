// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// unprivileged is a hypervisor whose QEMU is not root.
type unprivileged struct{ *hvtest.Fake }

func (unprivileged) QEMUUser(context.Context, string) (hv.ProcessUser, error) {
	return hv.ProcessUser{UID: 64055, GID: 64055}, nil
}

func TestDoctorNamesWhatQEMUDoesNotReach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to look as another user")
	}
	top, err := os.MkdirTemp("/var/tmp", "volferry-doctor-") //nolint:usetesting // the parent of t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	state, pool := filepath.Join(top, "state"), filepath.Join(top, "pool")
	for _, dir := range []string{top, state, filepath.Join(state, "overlays"), pool} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fake := hvtest.New()
	fake.AddPool(hv.PoolInfo{Name: "fast", Type: "dir", Path: pool, Active: true})
	d := &doctor{cfg: &config{OverlayDir: filepath.Join(state, "overlays")}, hv: unprivileged{fake}}
	if checks := d.reach(t.Context()); len(checks) != 1 || checks[0].Status != "ok" {
		t.Errorf("where everything is open: %+v", checks)
	}
	for dir, want := range map[string]string{state: "fail", pool: "warn"} {
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		checks := d.reach(t.Context())
		if len(checks) != 1 || checks[0].Status != want || !strings.Contains(checks[0].Message, dir+" (mode 0700)") {
			t.Errorf("with %s closed: %+v", dir, checks)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
