// SPDX-License-Identifier: Apache-2.0

package store

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// brief returns a report of host a by a digest.
func brief(digest string) api.HostReport {
	return api.HostReport{ID: hostA, Name: "a", Epoch: 1, Digest: digest}
}

// wantAll requires the error that asks for a whole report.
func wantAll(t *testing.T, err error) {
	t.Helper()
	wantCode(t, err, api.CodeConflict, "it wants the whole report")
	if err != nil && api.AsError(err).Details[api.DetailReportWhole] != true {
		t.Errorf("details = %v", api.AsError(err).Details)
	}
}

func TestADigestStandsForTheReportThatWasAnsweredWithIt(t *testing.T) {
	commits := 0
	s := openWith(t, filepath.Join(t.TempDir(), "registry.db"), Options{OnCommit: func(int, time.Duration) { commits++ }})
	whole := reportOf(hostA, "a", 1)
	whole.BootID, whole.Pools = "first", []api.Pool{{Name: "fast", FreeBytes: 1}}
	digest := must(s.Reports.Receive(t.Context(), nobody, whole))(t).ReportDigest
	again := must(s.Reports.Receive(t.Context(), nobody, whole))(t)
	if digest == "" || again.ReportDigest != digest {
		t.Fatalf("digests %q and %q of the same report", digest, again.ReportDigest)
	}
	commits = 0
	s.now = func() time.Time { return time.Now().Add(time.Minute) }
	h := must(s.Reports.Receive(t.Context(), nobody, brief(digest)))(t)
	if h.Status != api.HostUp || h.Mark == nil || *h.Mark != s.Marks.Now() || h.ReportDigest != digest || commits != 0 {
		t.Errorf("answer %+v, %d commits", h, commits)
	}
	if p := must(s.Pools.Get(t.Context(), "fast", ""))(t); p.FreeBytes != 1 || p.UpdatedAt.After(*again.LastSeenAt) {
		t.Errorf("the pool is %+v: what a digest does not say is as of the whole report at %v", p, again.LastSeenAt)
	}
	wantAll(t, second(s.Reports.Receive(t.Context(), nobody, brief("another"))))
	whole.BootID = "second"
	must(s.Reports.Receive(t.Context(), nobody, whole))(t)
	wantAll(t, second(s.Reports.Receive(t.Context(), nobody, brief(digest))))

	both := reportOf(hostA, "a", 1)
	both.Digest, both.Instances = digest, []api.InstanceReport{}
	wantCode(t, second(s.Reports.Receive(t.Context(), nobody, both)), api.CodeInvalidArgument, "one or the other")
	unknown := brief(digest)
	unknown.ID, unknown.Name = hostB, "b"
	wantAll(t, second(s.Reports.Receive(t.Context(), nobody, unknown)))
}

func TestARegistryThatWasJustStartedWantsTheWholeReport(t *testing.T) {
	s, reopen := reopenable(t)
	digest := must(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a", 1)))(t).ReportDigest
	s = reopen()
	wantAll(t, second(s.Reports.Receive(t.Context(), nobody, brief(digest))))
	must(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a", 1)))(t)
	must(s.Reports.Receive(t.Context(), nobody, brief(digest)))(t)
}

// A repeated report of an instance is a change again once the instance has changed otherwise.
func TestWhatChangesAnInstanceMakesItsHostReportWhole(t *testing.T) {
	s := newSite(t)
	digests := map[string]string{}
	for host, name := range map[string]string{hostA: "a", hostB: "b"} {
		digests[host] = must(s.Reports.Receive(t.Context(), nobody, reportOf(host, name, 1)))(t).ReportDigest
	}
	must(s.Instances.Register(t.Context(), nobody, api.InstanceRegister{ID: app, Name: "app", Host: "a", State: api.InstanceRunning}))(t)
	wantAll(t, second(s.Reports.Receive(t.Context(), nobody, brief(digests[hostA]))))
	other := brief(digests[hostB])
	other.ID, other.Name = hostB, "b"
	must(s.Reports.Receive(t.Context(), nobody, other))(t)
}

func TestADigestOfAnOlderEpochIsStale(t *testing.T) {
	s := newSite(t)
	digest := must(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a", 1)))(t).ReportDigest
	must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	wantStale(t, second(s.Reports.Receive(t.Context(), as(hostA, 1), brief(digest))), 2)
	must(s.Hosts.Rejoin(t.Context(), as(hostA, 2), hostA, api.HostRejoin{Epoch: 2}))(t)
	wantStale(t, second(s.Reports.Receive(t.Context(), as(hostA, 1), brief(digest))), 2)
	back := brief(digest)
	back.Epoch = 2
	wantAll(t, second(s.Reports.Receive(t.Context(), as(hostA, 2), back)))
}

func TestARestoreIsProvedByADigestTooAndKeptFromAllHosts(t *testing.T) {
	for name, digest := range map[string]func(*Store) string{
		"that the backup's registry knows": func(s *Store) string {
			return must(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a", 1)))(t).ReportDigest
		},
		"that the backup's registry does not know": func(*Store) string { return "of the lost history" },
	} {
		t.Run(name, func(t *testing.T) {
			s, m := restored(t)
			in := brief(digest(s))
			in.Mark = &m
			wantCode(t, second(s.Reports.Receive(t.Context(), nobody, in)), api.CodeRegistryUnavailable, "host a knows of event 2 of timeline 1")
			wantReadOnly(t, s, true)
			wantCode(t, post(t.Context(), s, as(hostA, 1)), api.CodeRegistryUnavailable, "restored from a backup")
			must(s.Marks.AcceptRestore(t.Context(), nobody, acceptedBlind))(t)
			wantCode(t, second(s.Reports.Receive(t.Context(), nobody, in)), api.CodeStaleEpoch, "host a")
		})
	}
}
