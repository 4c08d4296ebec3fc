// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

func TestDoctorNamesTheGuestsThatAreConfined(t *testing.T) {
	fake := hvtest.New()
	d := &Doctor{HV: fake}
	for i := range 12 {
		id := uuid.NewString()
		if err := fake.Define(hv.Domain{ID: id, Name: fmt.Sprintf("web%02d", i)}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue // it is off
		}
		if err := fake.Start(id); err != nil {
			t.Fatal(err)
		}
	}
	checks := d.confinements(t.Context())
	if len(checks) != 1 || !found(checks, "security", "ok", "no security module confines 11 running guests: web01, web02") || !found(checks, "security", "ok", "web10, and 1 more") {
		t.Errorf("unconfined guests: %+v", checks)
	}
	fake.Confine("/etc/apparmor.d/libvirt/x.files")
	if checks := d.confinements(t.Context()); len(checks) != 1 || !found(checks, "security", "ok", "AppArmor confines 11 running guests: web01") {
		t.Errorf("confined guests: %+v", checks)
	}
	fake.Inject(hvtest.Fault{Call: "Confinement", Nth: 1, Err: errors.New("no process")})
	checks = d.confinements(t.Context())
	if len(checks) != 2 || !found(checks, "security", "warn", "it is not known what confines instance web") || !found(checks, "security", "ok", "confines 10 running guests") {
		t.Errorf("with a guest whose process is not found: %+v", checks)
	}
	for range 11 {
		fake.Inject(hvtest.Fault{Call: "Confinement", Err: &hv.NotAskedError{Err: errors.New("no answer from volferryd-processes")}})
	}
	checks = d.confinements(t.Context())
	if len(checks) != 1 || !found(checks, "security", "warn", "it is not known what confines the running guests: no answer from volferryd-processes") {
		t.Errorf("while nothing looks at processes: %+v", checks)
	}
}

// labelled is a hypervisor with guests that have a context of SELinux.
type labelled struct{ *hvtest.Fake }

func (labelled) Confinement(context.Context, string) (hv.Confinement, error) {
	return hv.Confinement{Context: "system_u:system_r:svirt_t:s0:c1,c2"}, nil
}

func TestDoctorSaysThatPermissiveSELinuxConfinesNoGuest(t *testing.T) {
	fake := hvtest.New()
	id := uuid.NewString()
	if err := errors.Join(fake.Define(hv.Domain{ID: id, Name: "web"}), fake.Start(id)); err != nil {
		t.Fatal(err)
	}
	defer func(was string) { enforceFile = was }(enforceFile)
	enforceFile = filepath.Join(t.TempDir(), "enforce")
	d := &Doctor{HV: labelled{fake}}
	for enforce, says := range map[string]string{
		"1": "SELinux confines 1 running guest: web",
		"0": "SELinux is permissive, and does not confine 1 running guest: web",
	} {
		if err := os.WriteFile(enforceFile, []byte(enforce), 0o600); err != nil {
			t.Fatal(err)
		}
		if checks := d.confinements(t.Context()); len(checks) != 1 || !found(checks, "security", "ok", says) {
			t.Errorf("with %s in the file: %+v, want %q", enforce, checks, says)
		}
	}
}
