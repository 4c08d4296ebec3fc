// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestDoctorFixesAHostAndTouchesNoGuest(t *testing.T) {
	leftToTestE2E(t)
	h := startHost(t)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	if said := h.ctl(t, "doctor"); !strings.Contains(said, "ok    hook: ") || !strings.Contains(said, "ok    qemu: an image was made and opened in 4 places") {
		t.Errorf("on a host that is as it should be, doctor says\n%s", said)
	}

	// A libvirtd that was started before the hook was there, and directories that somebody
	// has tidied up.
	h.KillDaemon()
	hook, aside := filepath.Join(h.Libvirtd.HooksDir, "qemu.d", "volferry-guard"), filepath.Join(h.Libvirtd.HooksDir, "aside")
	if err := errors.Join(
		os.Rename(hook, aside), h.Libvirtd.Restart(t.Context()), h.StartDaemon(t.Context()), os.Rename(aside, hook),
		os.Remove(h.Overlays()), os.Chmod(h.State(), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	said := h.doctorFails(t)
	for _, want := range []string{h.Overlays() + " is missing", "may not have seen the hook"} {
		if !strings.Contains(said, want) {
			t.Errorf("doctor does not say %q:\n%s", want, said)
		}
	}

	fixed := h.ctl(t, "doctor", "--fix")
	for _, want := range []string{
		"before: " + h.Overlays() + " is missing", "after:  " + h.State() + " has mode 0701", "after:  the hook has refused the test start",
		"ok    directories: ", "ok    hook: ", "the hook refused a test start at ",
	} {
		if !strings.Contains(fixed, want) {
			t.Errorf("doctor --fix does not say %q:\n%s", want, fixed)
		}
	}
	if again := h.ctl(t, "doctor", "--fix"); !strings.HasPrefix(again, "Nothing to fix.\n") {
		t.Errorf("the second time it says\n%s", again)
	}
	if domains := strings.Fields(h.virsh(t, "list", "--all", "--name")); len(domains) != 1 || g.state(t) != "running" {
		t.Errorf("the domains are %q, and the guest is %s", domains, g.state(t))
	}
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
}
