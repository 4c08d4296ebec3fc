// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// wantReportFirst requires the refusal that makes a daemon report at once.
func wantReportFirst(t *testing.T, err error) {
	t.Helper()
	wantCode(t, err, api.CodeRegistryUnavailable, "has not heard from host a yet")
	if err != nil && api.AsError(err).Details[api.DetailReportFirst] != true {
		t.Errorf("details = %v", api.AsError(err).Details)
	}
}

// The host's mark may prove that the database is from a backup, so it is compared first.
func TestAHostChangesNothingBeforeItsMarkWasComparedInThisRun(t *testing.T) {
	s, reopen := reopenable(t)
	givenMark(t, s)
	if err := post(t.Context(), s, as(hostA, 1)); err != nil {
		t.Fatal(err)
	}
	s = reopen()
	wantReportFirst(t, unchanged(t, s, func() error { return post(t.Context(), s, as(hostA, 1)) }))
	wantReportFirst(t, unchanged(t, s, func() error {
		return second(s.Hosts.Rejoin(t.Context(), as(hostA, 1), hostA, api.HostRejoin{Epoch: 1}))
	}))
	if err := post(t.Context(), s, nobody); err != nil {
		t.Errorf("an operator is no host: %v", err)
	}
	givenMark(t, s)
	if err := post(t.Context(), s, as(hostA, 1)); err != nil {
		t.Error(err)
	}
}

func TestAReportThatIsStaleWasComparedAllTheSame(t *testing.T) {
	s, reopen := reopenable(t)
	givenMark(t, s)
	must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	s = reopen()
	wantReportFirst(t, post(t.Context(), s, as(hostA, 1)))
	wantStale(t, second(s.Reports.Receive(t.Context(), as(hostA, 1), reportOf(hostA, "a", 1))), 2)
	wantStale(t, post(t.Context(), s, as(hostA, 1)), 2)
	must(s.Hosts.Rejoin(t.Context(), as(hostA, 2), hostA, api.HostRejoin{Epoch: 2}))(t)
}

func TestAReportThatProvesARestoreAdmitsNoHost(t *testing.T) {
	s, m := restored(t)
	wantReportFirst(t, post(t.Context(), s, as(hostA, 1)))
	wantCode(t, show(t, s, m), api.CodeRegistryUnavailable, "restored from a backup")
	wantCode(t, post(t.Context(), s, as(hostA, 1)), api.CodeRegistryUnavailable, "restored from a backup")
}

// acceptedSite returns a site after an accepted restore, with a volume called common in the pool of
// both hosts; host a has rejoined.
func acceptedSite(t *testing.T) (s *Store, epoch int64) {
	t.Helper()
	s = newSite(t)
	in := api.VolumeRegister{ID: id(volumeKind, 3), Name: "common", Status: api.VolumeAvailable, Host: hostA, Location: at("/nfs/common")}
	must(s.Volumes.Register(t.Context(), nobody, in))(t)
	must(s.Marks.AcceptRestore(t.Context(), nobody, acceptedBlind))(t)
	return s, comeBack(t, s, hostA)
}

// comeBack rejoins a host in its present epoch.
func comeBack(t *testing.T, s *Store, host string) int64 {
	t.Helper()
	epoch := must(s.Hosts.Get(t.Context(), host))(t).Epoch
	must(s.Hosts.Rejoin(t.Context(), as(host, epoch), host, api.HostRejoin{Epoch: epoch}))(t)
	return epoch
}

// A volume that only the lost history gave to a host is free in the backup.
func TestAVolumeThatAnotherHostMayHaveIsNotGivenAwayBeforeThatHostIsBack(t *testing.T) {
	common := id(volumeKind, 3)
	takes := map[string]func(s *Store, epoch int64) error{
		"attach": func(s *Store, epoch int64) error {
			return second(s.Attachments.Reserve(t.Context(), as(hostA, epoch), api.AttachmentReserve{
				ID: id(attachmentKind, 9), VolumeID: common, InstanceID: web, Device: "vdc", Mode: api.ModeRW, Host: hostA, Epoch: epoch, Generation: 1,
			}))
		},
		"migrate": func(s *Store, epoch int64) error {
			in := dataMigration()
			in.VolumeID, in.Epoch, in.Dst = common, epoch, at("/fast/common")
			return second(s.Migrations.Register(t.Context(), as(hostA, epoch), in))
		},
		"delete": func(s *Store, epoch int64) error {
			return second(s.Volumes.Transition(t.Context(), as(hostA, epoch), common, api.VolumeTransition{From: api.VolumeAvailable, To: api.VolumeDeleting}))
		},
	}
	for verb, take := range takes {
		for way, settle := range map[string]func(*testing.T, *Store){
			"back":   func(t *testing.T, s *Store) { comeBack(t, s, hostB) },
			"fenced": func(t *testing.T, s *Store) { must(s.Hosts.Fence(t.Context(), nobody, "b", cut))(t) },
		} {
			t.Run(verb+" until it is "+way, func(t *testing.T) {
				s, epoch := acceptedSite(t)
				err := unchanged(t, s, func() error { return take(s, epoch) })
				wantCode(t, err, api.CodeRegistryUnavailable, "cannot "+verb+" volume common now: the registry was restored from a backup, and host b")
				settle(t, s)
				if err := take(s, epoch); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestAVolumeThatNoOtherHostReachesIsGivenAwayAtOnce(t *testing.T) {
	s, epoch := acceptedSite(t)
	must(s.Attachments.Reserve(t.Context(), as(hostA, epoch), api.AttachmentReserve{
		ID: id(attachmentKind, 9), VolumeID: data, InstanceID: web, Device: "vdc", Mode: api.ModeRW, Host: hostA, Epoch: epoch, Generation: 1,
	}))(t)
}

// The host may have rejoined in the lost history, and run its guests.
func TestAFenceOfTheBackupAllowsNoForce(t *testing.T) {
	s := newSite(t)
	must(s.Migrations.Register(t.Context(), nobody, dataMigration()))(t)
	must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	must(s.Marks.AcceptRestore(t.Context(), nobody, acceptedBlind))(t)
	force := func() error { return second(s.Attachments.ForceDelete(t.Context(), nobody, rootAt)) }
	abandon := func() error {
		return second(s.Migrations.Abandon(t.Context(), nobody, id(migrationKind, 2), api.MigrationAbandon{Keep: api.KeepSrc, Reason: "the host burnt down"}))
	}
	wantCode(t, force(), api.CodeStateForbidden, "fence it once more")
	wantCode(t, abandon(), api.CodeStateForbidden, "fence it once more")
	must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	for _, err := range []error{force(), abandon()} {
		if err != nil {
			t.Error(err)
		}
	}
}
