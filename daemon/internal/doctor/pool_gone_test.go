// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

func TestDoctorNamesTheVolumesWhosePoolIsGone(t *testing.T) {
	fake := hvtest.New()
	fake.AddPool(hv.PoolInfo{Name: "fast", Type: "dir", Path: "/fast", Active: true})
	fake.AddPool(hv.PoolInfo{Name: "off", Type: "dir", Path: "/off"})
	in := func(name, pool string) api.Volume {
		return api.Volume{ID: name, Name: name, Host: "alpha", Location: api.Location{Pool: pool}}
	}
	elsewhere := in("elsewhere", "old")
	elsewhere.Host = "beta"
	volumes := []api.Volume{
		in("good", "fast"), in("waits", "off"), in("file", ""),
		in("moved", "old"), in("elsewhere", "old"), in("deleted", "old"),
		in("db", "old"), in("app", "old"), in("log", "older"),
	}
	d := &Doctor{HV: fake, Volume: knownVolumes{
		"moved": in("moved", "fast"), "elsewhere": elsewhere,
		"db": in("db", "old"), "app": in("app", "old"), "log": in("log", "older"),
	}.find}
	checks := d.poolsGone(t.Context(), volumes)
	if len(checks) != 2 || checks[0].Name != "pool old" || checks[1].Name != "pool older" || checks[0].Status != "fail" {
		t.Fatalf("%+v, want failures of pools old and older", checks)
	}
	if !strings.HasSuffix(checks[0].Message, "the registry has 2 volumes of this host in it: app, db") || !strings.Contains(checks[0].Advice, "virsh pool-start old") ||
		!strings.Contains(checks[1].Advice, "volferryctl volume forget log") {
		t.Errorf("%+v", checks)
	}
	if checks := d.poolsGone(t.Context(), volumes[:6]); len(checks) != 0 {
		t.Errorf("%+v, want nothing", checks)
	}
	d.Volume = knownVolumes(nil).find // the registry does not answer
	if checks := d.poolsGone(t.Context(), volumes[6:7]); len(checks) != 1 {
		t.Errorf("%+v without the registry, want the failure", checks)
	}
	fake.Disconnect()
	if checks := d.poolsGone(t.Context(), volumes); len(checks) != 0 {
		t.Errorf("%+v without libvirt, which has a line of its own", checks)
	}
}
