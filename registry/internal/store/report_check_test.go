// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
)

func TestReportsThatAreRefused(t *testing.T) {
	pools := func(n int) func(*api.HostReport) {
		return func(r *api.HostReport) {
			for i := range n {
				r.Pools = append(r.Pools, api.Pool{Name: fmt.Sprint("p", i), Type: "dir"})
			}
		}
	}
	instances := func(n int) func(*api.HostReport) {
		return func(r *api.HostReport) {
			for range n {
				r.Instances = append(r.Instances, api.InstanceReport{ID: uuid.NewString(), State: api.InstanceRunning})
			}
		}
	}
	moving := func(edit func(*api.Migration)) func(*api.HostReport) {
		return func(r *api.HostReport) {
			m := api.Migration{ID: move, State: api.MigrationCopying, Phase: "waiting for guest", BytesTotal: 10, BytesDone: 5}
			edit(&m)
			r.Migrations = []api.Migration{m}
		}
	}
	far := math.Inf(1)
	for name, tc := range map[string]struct {
		edit func(*api.HostReport)
		text string
	}{
		"the most pools":     {pools(256), ""},
		"too many pools":     {pools(257), "257 pools"},
		"a pool twice":       {func(r *api.HostReport) { pools(1)(r); pools(1)(r) }, "twice"},
		"the most instances": {instances(4096), ""},
		"too many instances": {instances(4097), "4097 instances"},
		"an instance in two states": {func(r *api.HostReport) {
			r.Instances = []api.InstanceReport{{ID: web, State: "running"}, {ID: web, State: "stopped"}}
		}, "twice"},
		"progress":                     {moving(func(*api.Migration) {}), ""},
		"negative bytes":               {moving(func(m *api.Migration) { m.BytesDone = -5 }), "out of range"},
		"more bytes than any disk has": {moving(func(m *api.Migration) { m.BytesDone = 1e18 }), "out of range"},
		"a negative rate":              {moving(func(m *api.Migration) { m.RateBytesPerSecond = -1 }), "out of range"},
		"an endless stall":             {moving(func(m *api.Migration) { m.StallMS.Switch = &far }), "out of range"},
		"a phase with an escape":       {moving(func(m *api.Migration) { m.Phase = "\x1b[2J" }), "phase"},
		"a phase that is a novel":      {moving(func(m *api.Migration) { m.Phase = strings.Repeat("x", 65) }), "phase"},
		"an error that is a novel":     {moving(func(m *api.Migration) { m.Error = &api.Error{Message: strings.Repeat("x", 1<<16)} }), "longer than"},
		"a migration twice":            {func(r *api.HostReport) { r.Migrations = []api.Migration{{ID: move}, {ID: move}} }, "twice"},
		"migrations without number":    {func(r *api.HostReport) { r.Migrations = make([]api.Migration, 1025) }, "1025 migrations"},
	} {
		t.Run(name, func(t *testing.T) {
			in := reportOf(hostA, "a", 1)
			tc.edit(&in)
			err := checkReport(in)
			if tc.text == "" && err != nil {
				t.Error(err)
			}
			if tc.text != "" {
				wantCode(t, err, api.CodeInvalidArgument, tc.text)
			}
		})
	}
}

func TestAReportThatSaysNothingNewOfInstancesWritesNothingOfThem(t *testing.T) {
	s := newSite(t)
	in := reportOf(hostA, "a", 1)
	in.Instances = []api.InstanceReport{{ID: web, State: api.InstanceRunning}}
	must(s.Report(t.Context(), as(hostA, 1), in))(t)
	before := must(s.Instance(t.Context(), web, everyone))(t)
	for range 100 {
		in.Instances = append(in.Instances, api.InstanceReport{ID: uuid.NewString(), State: api.InstanceStopped})
	}
	must(s.Report(t.Context(), as(hostA, 1), in))(t)
	if after := must(s.Instance(t.Context(), web, everyone))(t); !after.UpdatedAt.Equal(before.UpdatedAt) {
		t.Errorf("updated at %s, was %s", after.UpdatedAt, before.UpdatedAt)
	}
	in.Instances[0].State = api.InstancePaused
	must(s.Report(t.Context(), as(hostA, 1), in))(t)
	if after := must(s.Instance(t.Context(), web, everyone))(t); after.State != api.InstancePaused {
		t.Errorf("state = %s", after.State)
	}
}

func TestAHostThatReportsWithoutEndIsHeldUpAndNoOther(t *testing.T) {
	s := newSite(t)
	now := time.Now()
	s.now = func() time.Time { return now }
	report := func(host, name string, n int) error {
		in := reportOf(host, name, 1)
		in.Version = fmt.Sprint(n)
		return second(s.Report(t.Context(), as(host, 1), in))
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

func TestOneReportOfAHostIsInTheLineToTheWriterAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m hostCache
		m.load(nil)
		end := must(m.beginReport(t.Context(), hostA))(t)
		must(m.beginReport(t.Context(), hostB))(t)()
		gone, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2)
		go func() { results <- second(m.beginReport(gone, hostA)) }()
		synctest.Wait()
		cancel()
		if err := <-results; err == nil {
			t.Error("a caller that went away got its turn")
		}
		go func() { results <- second(m.beginReport(t.Context(), hostA)) }()
		synctest.Wait()
		select {
		case err := <-results:
			t.Fatalf("the second did not wait: %v", err)
		default:
		}
		end()
		if err := <-results; err != nil {
			t.Error(err)
		}
	})
}
