// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// nfsShared makes hosts report the pool nfs as shared or not.
func nfsShared(t *testing.T, s *Store, shared bool, hosts ...string) {
	t.Helper()
	for n, name := range []string{"a", "b"} {
		for _, host := range hosts {
			if host != name {
				continue
			}
			pools := clusterPools()
			pools[3].Shared = shared
			must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: id(hostKind, n+1), Name: name, BootID: "first", Epoch: 1, Pools: pools}))(t)
		}
	}
}

// late registers a volume of a host in pool nfs while that is not shared.
func late(t *testing.T, s *Store, n int, host string, l api.Location) {
	t.Helper()
	must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{
		ID: id(volumeKind, 60+n), Name: "late-" + host, Host: host, Status: api.VolumeAvailable, Location: l,
	}))(t)
}

func TestAVolumeThatIsOlderThanTheSharingOfItsPoolIsReachedByAllThatShareIt(t *testing.T) {
	for name, l := range map[string]api.Location{
		"by its pool":            at("/nfs/late"),
		"by its pool, unsettled": {Pool: "nfs", Name: "late", Path: "/nfs/late", Format: api.FormatRaw, SizeBytes: 512},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			nfsShared(t, s, false, "a", "b")
			late(t, s, 1, "a", l)
			in := reserve(func(in *api.AttachmentReserve) {
				atDB(in)
				in.VolumeID = id(volumeKind, 61)
			})
			_, err := s.Attachments.Reserve(t.Context(), as(hostB, 1), in)
			wantCode(t, err, api.CodeNotYourHost, "another host's")
			nfsShared(t, s, true, "a", "b")
			must(s.Attachments.Reserve(t.Context(), as(hostB, 1), in))(t)
		})
	}
}

// A registry that starts again may have other settings for a pool, and its hosts' reports do not
// change.
func TestAReportThatSaysNothingNewSharesWhatIsOlder(t *testing.T) {
	s, reopen := reopenable(t)
	for n, name := range []string{"a", "b"} {
		must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: id(hostKind, n+1), Name: name, BootID: "first", Pools: clusterPools()}))(t)
	}
	late(t, s, 1, "a", at("/nfs/late"))
	if _, err := s.sqlite.Write.ExecContext(t.Context(), "UPDATE locations SET scope = ?", hostA); err != nil {
		t.Fatal(err)
	}
	s = reopen()
	nfsShared(t, s, true, "a", "b")
	v := must(s.Volumes.Get(t.Context(), "late-a", Viewer{HostID: hostB}))(t)
	if v.Name != "late-a" {
		t.Errorf("volume = %+v", v)
	}
}

func TestOfTwoVolumesAtOnePlaceOfAPoolThatBecomesSharedTheSecondStaysItsHosts(t *testing.T) {
	s := newCluster(t)
	nfsShared(t, s, false, "a", "b")
	late(t, s, 1, "a", at("/nfs/late"))
	late(t, s, 2, "b", at("/nfs/late"))
	nfsShared(t, s, true, "a", "b")
	_, err := s.Volumes.Get(t.Context(), "late-b", Viewer{HostID: hostA})
	wantCode(t, err, api.CodeNotYourHost, "")
	must(s.Volumes.Get(t.Context(), "late-a", Viewer{HostID: hostB}))(t)
	events := must(s.Trail.Events(t.Context(), 0))(t)
	if last := events[len(events)-1]; last.What != "pool.shared_twice" || last.Host != "b" || last.Object != "pool/nfs" {
		t.Errorf("the last event is %+v", last)
	}
}
