// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

func TestDoctorAdvisesAWholeCommandForAPoolThatIsFull(t *testing.T) {
	fake := hvtest.New()
	fake.AddPool(hv.PoolInfo{Name: "tiny", Type: "logical", Path: "/dev/tiny", Active: true, FreeBytes: poolLow - 1})
	checks := (&Doctor{Cfg: &config.Config{}, HV: fake}).Pools(t.Context())
	if len(checks) != 1 || checks[0].Status != "warn" || !strings.Contains(checks[0].Advice, "(volferryctl pool drain tiny --to POOL)") {
		t.Errorf("got %+v", checks)
	}
}

func TestDoctorShowsTheWarningOfAPoolThatCanBeUsed(t *testing.T) {
	fake := hvtest.New()
	fake.AddPool(hv.PoolInfo{Name: "thin", Type: hv.ConnectorPool, Path: "/dev/vg", Active: true, FreeBytes: 10 * poolLow, Problem: "another volume group has the name vg"})
	checks := (&Doctor{Cfg: &config.Config{}, HV: fake}).Pools(t.Context())
	if len(checks) != 2 || checks[0].Status != "warn" || !strings.Contains(checks[0].Message, "name vg") || checks[1].Status != "ok" {
		t.Errorf("got %+v", checks)
	}
}

func TestDoctorLooksForNoRoomInAPoolThatMakesNoVolumes(t *testing.T) {
	fake := hvtest.New()
	fake.AddPool(hv.PoolInfo{Name: "san", Type: hv.ConnectorPool, Path: "/dev/disk/by-id", Active: true, NoCreate: true})
	checks := (&Doctor{Cfg: &config.Config{}, HV: fake}).Pools(t.Context())
	if len(checks) != 1 || checks[0].Status != "ok" || checks[0].Advice != "" || strings.Contains(checks[0].Message, "free") {
		t.Errorf("got %+v", checks)
	}
}
