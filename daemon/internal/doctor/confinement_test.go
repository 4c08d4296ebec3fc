// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
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
