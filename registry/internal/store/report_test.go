// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
)

func TestAReportThatSaysNothingNewOfInstancesWritesNothingOfThem(t *testing.T) {
	s := newSite(t)
	in := reportOf(hostA, "a", 1)
	in.Instances = []api.InstanceReport{{ID: web, State: api.InstanceRunning}}
	must(s.Reports.Receive(t.Context(), as(hostA, 1), in))(t)
	before := must(s.Instances.Get(t.Context(), web, everyone))(t)
	for range 100 {
		in.Instances = append(in.Instances, api.InstanceReport{ID: uuid.NewString(), State: api.InstanceStopped})
	}
	must(s.Reports.Receive(t.Context(), as(hostA, 1), in))(t)
	if after := must(s.Instances.Get(t.Context(), web, everyone))(t); !after.UpdatedAt.Equal(before.UpdatedAt) {
		t.Errorf("updated at %s, was %s", after.UpdatedAt, before.UpdatedAt)
	}
	in.Instances[0].State = api.InstancePaused
	must(s.Reports.Receive(t.Context(), as(hostA, 1), in))(t)
	if after := must(s.Instances.Get(t.Context(), web, everyone))(t); after.State != api.InstancePaused {
		t.Errorf("state = %s", after.State)
	}
}

func TestAGuestThatStandsStillIsShownSoUntilItsHostSaysOtherwise(t *testing.T) {
	s := newSite(t)
	in := reportOf(hostA, "a", 1)
	for _, c := range []struct{ state, standstill, shown api.InstanceState }{
		{api.InstancePaused, api.InstanceAsleep, api.InstanceAsleep},
		{api.InstancePaused, api.InstanceCrashed, api.InstanceCrashed},
		{api.InstancePaused, "", api.InstancePaused},
		{api.InstancePaused, api.InstanceAsleep, api.InstanceAsleep},
		{api.InstanceRunning, "", api.InstanceRunning},
	} {
		in.Instances = []api.InstanceReport{{ID: web, State: c.state, Standstill: c.standstill}}
		must(s.Reports.Receive(t.Context(), as(hostA, 1), in))(t)
		if got := must(s.Instances.Get(t.Context(), web, everyone))(t); got.State != c.shown {
			t.Errorf("reported as %+v, it is shown as %s", in.Instances[0], got.State)
		}
	}
	in.Instances[0].Standstill = api.InstanceError
	if _, err := s.Reports.Receive(t.Context(), as(hostA, 1), in); api.CodeOf(err) != api.CodeInvalidArgument {
		t.Errorf("an unknown one is taken: %v", err)
	}
}

func TestAHostThatReportsWithoutEndIsHeldUpAndNoOther(t *testing.T) {
	s := newSite(t)
	now := time.Now()
	s.now = func() time.Time { return now }
	report := func(host, name string, n int) error {
		in := reportOf(host, name, 1)
		in.Version = fmt.Sprint(n)
		return second(s.Reports.Receive(t.Context(), as(host, 1), in))
	}
	for n := range reportsAtOnce {
		if err := report(hostA, "a", n); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, report(hostA, "a", -1), api.CodeRegistryUnavailable, "try again later")
	if err := report(hostA, "a", reportsAtOnce-1); err != nil {
		t.Errorf("a report that says nothing new: %v", err)
	}
	if err := report(hostB, "b", 1); err != nil {
		t.Errorf("another host: %v", err)
	}
	now = now.Add(time.Second)
	if err := report(hostA, "a", -1); err != nil {
		t.Errorf("later: %v", err)
	}
}
