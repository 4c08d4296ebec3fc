// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/test/lab"
)

// testAbout: About agrees with virsh, and the process is the one at the socket.
func testAbout(t *testing.T, env *realEnv) {
	about, err := env.conn.About(t.Context())
	must(t, err)
	said := env.virsh(t, "version", "--daemon")
	for _, want := range []string{"library: libvirt " + about.Libvirt.String(), "hypervisor: QEMU " + about.QEMU.String()} {
		if !strings.Contains(said, want) {
			t.Errorf("virsh says\n%sand not %q", said, want)
		}
	}
	if !slices.Equal(about.SecurityModels, []string{"dac"}) || !about.GivesImages || !about.RemembersOwners {
		t.Errorf("the lab's libvirtd has no security driver and the defaults of the rest; About has %+v", about)
	}
	p := about.Process
	if p == nil || p.PID != env.libvirtd.PID() || p.Name != "libvirtd" || p.ID == "" {
		t.Fatalf("process %+v, want libvirtd %d", p, env.libvirtd.PID())
	}
	if age := time.Since(p.Since); age < 0 || age > time.Hour {
		t.Errorf("libvirtd, just started, was started %s ago", age)
	}
}

func TestHookIsAskedOnceLibvirtWasReloaded(t *testing.T) {
	lab.Require(t)
	leftToTestConformance(t)
	dir := lab.TempDir(t)
	libvirtd, err := lab.StartLibvirtd(t.Context(), dir)
	must(t, err)
	t.Cleanup(func() { must(t, libvirtd.Close()) })
	env := &realEnv{libvirtd: libvirtd, dir: dir, conn: libvirt.New(libvirt.Config{
		Socket: libvirtd.Socket, DefinitionsDir: filepath.Join(dir, "etc", "qemu"), StateDir: libvirtd.StateDir(),
	})}
	env.run(t)
	asked := func(want bool) error {
		got, err := env.conn.HookRefuses(t.Context(), uuid.NewString())
		must(t, err)
		if got != want {
			return hv.ErrNotReady
		}
		return nil
	}
	must(t, asked(false)) // there is none
	hooks := filepath.Join(libvirtd.HooksDir, "qemu.d")
	must(t, os.MkdirAll(hooks, 0o755))
	must(t, os.WriteFile(filepath.Join(hooks, "no"), []byte("#!/bin/sh\n[ \"$2 $3\" != 'prepare begin' ]\n"), 0o755))
	must(t, asked(false)) // libvirtd has not noticed it
	must(t, libvirtd.Reload())
	again := func(error) bool { return true }
	must(t, retry.Do(t.Context(), retry.Backoff{First: 50 * time.Millisecond, Max: time.Second}, time.Minute, func() error { return asked(true) }, again))

	if left := strings.TrimSpace(env.virsh(t, "list", "--all", "--name")); left != "" {
		t.Errorf("the trials left the domains %q", left)
	}
	if out, err := exec.CommandContext(t.Context(), "pgrep", "-f", "guest="+libvirt.TrialName).Output(); err == nil {
		t.Errorf("the trials left the processes %q", out)
	}
}
