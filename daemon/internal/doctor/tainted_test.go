// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/migrate/monitor"
)

func TestDoctorSaysWhoseATaintedDomainIs(t *testing.T) {
	var (
		guests []monitor.TaintedGuest
		fail   error
	)
	d := &Doctor{Tainted: func(context.Context) ([]monitor.TaintedGuest, error) { return guests, fail }}
	one := func(status string, says ...string) {
		t.Helper()
		checks := d.taints(t.Context())
		for _, word := range says {
			if len(checks) != 1 || checks[0].Status != status || !strings.Contains(checks[0].Message, word) {
				t.Errorf("%+v, want one %s that says %q", checks, status, word)
			}
		}
	}
	one("ok", "no domain is tainted")
	guests = []monitor.TaintedGuest{{InstanceName: "web", MigrationID: "m1", VolumeName: "db"}}
	one("ok", "instance web", "custom-monitor", "migration m1", "volume db", "ends with the guest's process")
	fail = errors.New("libvirt is away")
	one("warn", "libvirt is away")
}
