// SPDX-License-Identifier: Apache-2.0

package store

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// A host that falsely reports its own pool as shared would reach other hosts' volumes in the pool
// of that name.
func TestAHostIsBelievedThatAPoolIsSharedIfTheSiteHasNamedIt(t *testing.T) {
	for name, tc := range map[string]struct {
		named  map[string][]string
		status SharedPools
		shared bool
	}{
		"nothing named": {nil, SharedPools{Reported: []string{"nfs"}}, true},
		"named":         {map[string][]string{"nfs": nil}, SharedPools{Confirmed: true, AnyHost: []string{"nfs"}}, true},
		"another named": {map[string][]string{"san": {"a", "b"}}, SharedPools{Confirmed: true, Reported: []string{"nfs of a", "nfs of b"}}, false},
		"none is":       {map[string][]string{}, SharedPools{Confirmed: true, Reported: []string{"nfs of a", "nfs of b"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, filepath.Join(t.TempDir(), "registry.db"), Options{SharedPools: tc.named})
			for n, host := range []string{"a", "b"} {
				in := reportOf(id(hostKind, n+1), host, 1)
				in.Pools = []api.Pool{{Name: "fast", Type: "dir", Path: "/fast"}, {Name: "nfs", Type: "dir", Path: "/nfs", Shared: true}}
				must(s.Reports.Receive(t.Context(), nobody, in))(t)
			}
			if diff := cmp.Diff(tc.status, s.Pools.Shared()); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if p := must(s.Pools.Get(t.Context(), "nfs", "a"))(t); p.Shared != tc.shared {
				t.Errorf("shared = %t", p.Shared)
			}
			if p, err := s.Pools.Get(t.Context(), "nfs", ""); tc.shared && (err != nil || p.Host != "a") || !tc.shared && api.CodeOf(err) != api.CodeInvalidArgument {
				t.Errorf("without a host: %+v, %v", p, err)
			}
			must(s.Instances.Register(t.Context(), nobody, api.InstanceRegister{ID: web, Name: "web", Host: "b", State: api.InstanceRunning}))(t)
			must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{ID: data, Name: "data", Status: api.VolumeAvailable, Host: hostA, Location: at("/nfs/data")}))(t)
			_, err := s.Attachments.Reserve(t.Context(), as(hostB, 1), api.AttachmentReserve{
				ID: id(attachmentKind, 9), VolumeID: data, InstanceID: web, Device: "vdb", Mode: api.ModeRW, Host: hostB, Epoch: 1, Generation: 1,
			})
			if tc.shared && err != nil {
				t.Error(err)
			}
			if !tc.shared {
				wantCode(t, err, api.CodeNotYourHost, "no shared pool")
			}
		})
	}
}

func TestAPoolThatItsHostDoesNotReportNowIsStale(t *testing.T) {
	s := openWith(t, filepath.Join(t.TempDir(), "registry.db"), Options{})
	now := time.Now().Truncate(time.Microsecond)
	s.now = func() time.Time { return now }
	report := func(pools []api.Pool) {
		now = now.Add(time.Second)
		in := reportOf(id(hostKind, 1), "a", 1)
		in.Pools = pools
		must(s.Reports.Receive(t.Context(), nobody, in))(t)
	}
	check := func(when string, stale bool, at time.Time) {
		t.Helper()
		p := must(s.Pools.Get(t.Context(), "fast", "a"))(t)
		if p.Stale != stale || p.FreeBytes != 5 || !p.UpdatedAt.Equal(at) {
			t.Errorf("%s: stale %t with %d bytes free at %s, want %t with 5 at %s", when, p.Stale, p.FreeBytes, p.UpdatedAt, stale, at)
		}
	}
	pools := []api.Pool{{Name: "fast", Type: "dir", Path: "/fast", FreeBytes: 5, CapacityBytes: 10}}
	report(pools)
	first := now
	check("reported", false, first)
	report(nil)
	check("libvirt is away", true, first)
	report(pools)
	again := now
	check("libvirt is back", false, again)
	now = now.Add(time.Hour)
	check("the host is silent", true, again)
}
