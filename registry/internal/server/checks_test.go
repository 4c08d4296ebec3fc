// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

func TestStatusNamesTheHostsThatDoNotReportAndSinceWhen(t *testing.T) {
	now := time.Unix(1800000000, 0)
	heard := now.Add(-5*time.Minute - 12*time.Second)
	hosts := []api.Host{
		{Name: "alpha", Status: api.HostUp, LastSeenAt: &now},
		{Name: "beta", Status: api.HostSuspect, LastSeenAt: &heard},
		{Name: "gone", Status: api.HostFenced, LastSeenAt: &heard},
	}
	counts := store.Counts{Hosts: map[string]int{api.HostUp: 1, api.HostSuspect: 1, api.HostFenced: 1}}
	c := hostsCheck(counts, silentHosts(hosts, now), nil)
	if want := "1 up, 1 suspect, 1 fenced; no report from beta (for 5m12s)"; c.Status != checkWarn || c.Message != want {
		t.Errorf("the check is %+v, want a warning with %q", c, want)
	}
}
