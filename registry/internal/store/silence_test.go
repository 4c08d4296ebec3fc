// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostcache"
)

// Its next report may be minutes away, but a present host reconnects at once.
func TestAHostOfALargeSiteIsSilentWhenItsWaitForTasksBrokeOff(t *testing.T) {
	s := newSite(t)
	for n := range 10_000 {
		s.hosts.Put(hostcache.Row{ID: fmt.Sprint("more", n)}, "")
	}
	now := time.Now()
	s.now = func() time.Time { return now }
	report := reportOf(hostA, "a", 1)
	must(s.Reports.Receive(t.Context(), nobody, report))(t)
	// is requires the host's status, and whether an operator who fences it must confirm.
	is := func(when, status string, asked bool) {
		t.Helper()
		h := must(s.Hosts.Get(t.Context(), "a"))(t)
		if up := s.isUp(hostA, *h.LastSeenAt); h.Status != status || up != asked {
			t.Errorf("%s: it is %s, want %s; its operator is asked: %t, want %t", when, h.Status, status, up, asked)
		}
	}
	now = now.Add(150 * time.Second)
	s.Hosts.Waits(hostA)
	now = now.Add(150 * time.Second)
	is("five minutes after its report it waits for tasks", api.HostUp, true)
	s.Hosts.BrokeOff(hostA)
	is("the connection broke", api.HostUp, true)
	now = now.Add(16 * time.Second)
	is("16 s later", api.HostUp, false)
	now = now.Add(15 * time.Second)
	is("31 s later", api.HostSuspect, false)
	must(s.Reports.Receive(t.Context(), nobody, report))(t)
	now = now.Add(150 * time.Second)
	is("it has reported since", api.HostUp, true)
	now = now.Add(76 * time.Second)
	is("it has said nothing for longer than it should", api.HostSuspect, false)
}
