// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

var (
	toSAN    = api.MigrationTarget{ToPool: "san", PauseAll: true, DeleteSource: true, CopyOptions: api.CopyOptions{BandwidthBytesPerSecond: 1000}}
	bothHere = []string{hostA, hostB}
)

// newPauseSite returns a cluster with a second shared pool, san, where disk is attached to app on
// host a and to db on host b.
func newPauseSite(t *testing.T) *Store {
	t.Helper()
	s := newCluster(t)
	for n, name := range []string{"a", "b"} {
		must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: id(hostKind, n+1), Name: name, BootID: "first", Pools: pausePools()}))(t)
	}
	attached(nil)(t, s)
	attached(atDB)(t, s)
	return s
}

func pausePools() []api.Pool {
	return append(clusterPools(), api.Pool{Name: "san", Type: "netfs", Path: "/san", Active: true, Shared: true, Multiattach: true})
}

// newPause returns a move of disk to san in phase checking.
func newPause(t *testing.T) (*Store, Pause) {
	t.Helper()
	s := newPauseSite(t)
	m := must(s.Pauses.Register(t.Context(), nobody, "disk", toSAN, bothHere))(t)
	return s, must(s.Pauses.Get(t.Context(), m.ID))(t)
}

// bring sets the state of every instance of a move.
func bring(t *testing.T, s *Store, p Pause, state string) Pause {
	t.Helper()
	for _, g := range p.Instances {
		g.State = state
		p = must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, p.Phase, g))(t)
	}
	return p
}

// asleep takes a new move to the state where all instances are saved.
func asleep(t *testing.T, s *Store, p Pause) {
	t.Helper()
	bring(t, s, p, PauseChecked)
	p = bring(t, s, must(s.Pauses.Suspend(t.Context(), nobody, p.Migration.ID))(t), PauseSuspended)
	bring(t, s, must(s.Pauses.Save(t.Context(), nobody, p.Migration.ID))(t), PauseSaved)
}

// awake takes a move with saved instances to the state where all are resumed.
func awake(t *testing.T, s *Store, p Pause) Pause {
	t.Helper()
	p = bring(t, s, p, PauseReady)
	return bring(t, s, must(s.Pauses.Resume(t.Context(), nobody, p.Migration.ID))(t), PauseRestored)
}

// made returns the dst of a move as its copy host makes it.
func made(p Pause) api.Location {
	dst := p.Migration.Dst
	dst.Path = "/san/" + dst.Name
	return dst
}

// flipped returns a move of disk to san in phase restoring.
func flipped(t *testing.T) (*Store, Pause) {
	t.Helper()
	s, p := newPause(t)
	asleep(t, s, p)
	must(s.Pauses.Copy(t.Context(), nobody, p.Migration.ID))(t)
	return s, must(s.Pauses.Flip(t.Context(), nobody, p.Migration.ID, made(p)))(t)
}

func wantLocks(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, i := range must(s.Instances.All(t.Context(), everyone))(t) {
		if i.Locked {
			got[i.ID] = i.LockedBy
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("locked instances (-want +got):\n%s", diff)
	}
}

func TestAMoveWithAllGuestsPausedLocksVolumeAndInstancesAtOnce(t *testing.T) {
	s, p := newPause(t)
	m := p.Migration
	if m.State != api.MigrationStarting || m.Phase != "checking" || m.Method != api.MethodSave || m.Dst.Pool != "san" || m.Dst.Name != "disk-"+m.ID[:8]+".raw" || m.Dst.Path != "" ||
		!m.DeleteSource || m.BandwidthBytesPerSecond != 1000 || m.Verify != "full" {
		t.Errorf("migration = %+v", m)
	}
	wantLocks(t, s, map[string]string{app: m.ID, db: m.ID})
	if v := must(s.Volumes.Get(t.Context(), disk, everyone))(t); v.MigrationID != m.ID || len(v.Attachments) != 2 {
		t.Errorf("volume = %+v", v)
	}
	if _, err := s.Pauses.Register(t.Context(), nobody, "disk", toSAN, bothHere); api.CodeOf(err) != api.CodeMigrationActive {
		t.Errorf("a second one: %v", err)
	}
	_, err := s.Migrations.Transition(t.Context(), nobody, m.ID, step(api.MigrationCancelled, api.MigrationStarting))
	wantCode(t, err, api.CodeStateForbidden, "the registry's")
	_, err = s.Instances.Unlock(t.Context(), nobody, app)
	wantCode(t, err, api.CodeInstanceLocked, m.ID)
	// Another volume cannot be attached to the locked instance.
	local := reserve(func(in *api.AttachmentReserve) {
		in.ID, in.VolumeID, in.Device = id(attachmentKind, 30), id(volumeKind, 4), "vdc"
	})
	_, err = s.Attachments.Reserve(t.Context(), nobody, local)
	wantCode(t, err, api.CodeInstanceLocked, "app")
}

func TestAnotherVolumeOfAPausedGuestIsNotSharedMeanwhile(t *testing.T) {
	s := newPauseSite(t)
	must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{
		ID: id(volumeKind, 9), Name: "cluster", Status: api.VolumeAvailable, Type: "gold", Host: "a", Location: at("/nfs/cluster"),
	}))(t)
	attached(func(in *api.AttachmentReserve) {
		in.ID, in.VolumeID, in.Device = id(attachmentKind, 30), id(volumeKind, 9), "vdc"
	})(t, s)
	m := must(s.Pauses.Register(t.Context(), nobody, "disk", toSAN, bothHere))(t)
	share := reserve(func(in *api.AttachmentReserve) {
		in.ID, in.VolumeID, in.InstanceID, in.Device = id(attachmentKind, 31), id(volumeKind, 9), web, "vdc"
	})
	err := unchanged(t, s, func() error { return second(s.Attachments.Reserve(t.Context(), nobody, share)) })
	wantCode(t, err, api.CodeInstanceLocked, "instance app has it too")
	must(s.Pauses.Cancel(t.Context(), nobody, m.ID, nil))(t)
	for _, g := range must(s.Pauses.Get(t.Context(), m.ID))(t).Instances {
		g.State = PauseRestored
		must(s.Pauses.SetInstance(t.Context(), nobody, m.ID, PauseCancelling, g))(t)
	}
	must(s.Attachments.Reserve(t.Context(), nobody, share))(t)
}

func TestMovesWithAllGuestsPausedThatAreRefused(t *testing.T) {
	target := func(edit func(*api.MigrationTarget)) api.MigrationTarget {
		in := toSAN
		edit(&in)
		return in
	}
	for name, tc := range map[string]struct {
		before func(*testing.T, *Store)
		volume string
		in     api.MigrationTarget
		there  []string
		code   api.Code
		text   string
	}{
		"nowhere":               {in: target(func(in *api.MigrationTarget) { in.ToPool = "" }), code: api.CodeInvalidArgument, text: "where"},
		"to two places":         {in: target(func(in *api.MigrationTarget) { in.ToPath = "/x" }), code: api.CodeInvalidArgument, text: "where"},
		"external copy":         {in: target(func(in *api.MigrationTarget) { in.ExternalCopy = true }), code: api.CodeInvalidArgument, text: "external"},
		"another method":        {in: target(func(in *api.MigrationTarget) { in.Method = "mirror" }), code: api.CodeInvalidArgument, text: "mirror"},
		"unverified deletion":   {in: target(func(in *api.MigrationTarget) { in.Verify = "none" }), code: api.CodeInvalidArgument, text: "verify full"},
		"unknown verify":        {in: target(func(in *api.MigrationTarget) { in.Verify = "some" }), code: api.CodeInvalidArgument, text: "full or none"},
		"negative bandwidth":    {in: target(func(in *api.MigrationTarget) { in.BandwidthBytesPerSecond = -1 }), code: api.CodeInvalidArgument, text: "negative"},
		"multiattach as qcow2":  {in: target(func(in *api.MigrationTarget) { in.ToFormat = "qcow2" }), code: api.CodeUnsupportedDisk, text: "raw"},
		"unknown volume":        {volume: "lost", code: api.CodeNotFound, text: "lost"},
		"where it is":           {in: target(func(in *api.MigrationTarget) { in.ToPool = "nfs" }), code: api.CodeSameLocation, text: "pool nfs already"},
		"attached nowhere":      {volume: "data", code: api.CodeStateForbidden, text: "no guest has it"},
		"a pool of nobody":      {in: target(func(in *api.MigrationTarget) { in.ToPool = "none" }), code: api.CodeNotFound, text: "none"},
		"a pool of each host":   {in: target(func(in *api.MigrationTarget) { in.ToPool = "fast" }), code: api.CodeUnsupportedDisk, text: "shared"},
		"a path of each host":   {in: target(func(in *api.MigrationTarget) { in.ToPool, in.ToPath = "", "/data/disk" }), code: api.CodeUnsupportedDisk, text: "shared"},
		"a host is not there":   {there: []string{hostA}, code: api.CodeHypervisorUnavailable, text: "instance db on host b"},
		"a host is fenced":      {before: fenceA, code: api.CodeHypervisorUnavailable, text: "host a"},
		"an instance is locked": {before: locked(db), code: api.CodeInstanceLocked, text: "instance db on host b"},
		"an instance is in error": {
			before: instanceState(api.InstanceError, app), code: api.CodeStateForbidden, text: "is error",
		},
		"a guest sleeps":      {before: reportedAtRest(api.InstanceAsleep), code: api.CodeInstanceBusy, text: "instance app on host a cannot be saved: it is asleep (S3); `virsh dompmwakeup app`"},
		"a guest has crashed": {before: reportedAtRest(api.InstanceCrashed), code: api.CodeInstanceBusy, text: "`virsh reset app` and then `virsh resume app`"},
		"an attachment ends": {before: func(t *testing.T, s *Store) {
			t.Helper()
			must(s.Attachments.Transition(t.Context(), nobody, first, attachmentStep(api.AttachmentDetaching, api.AttachmentAttached)))(t)
		}, code: api.CodeStateForbidden, text: "is detaching"},
		"another volume is shared with one that runs on": {before: func(t *testing.T, s *Store) {
			t.Helper()
			// The volume is at app, which is paused, and at web, which is not.
			must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{
				ID: id(volumeKind, 9), Name: "cluster", Status: api.VolumeAvailable, Type: "gold", Host: "a", Location: at("/nfs/cluster"),
			}))(t)
			attached(func(in *api.AttachmentReserve) {
				in.ID, in.VolumeID, in.Device = id(attachmentKind, 30), id(volumeKind, 9), "vdc"
			})(t, s)
			attached(func(in *api.AttachmentReserve) {
				in.ID, in.VolumeID, in.InstanceID, in.Device, in.Mode = id(attachmentKind, 31), id(volumeKind, 9), web, "vdc", api.ModeRO
			})(t, s)
		}, code: api.CodeMultiattached, text: "volume cluster with instance web"},
		"another volume comes": {before: reserved(func(in *api.AttachmentReserve) {
			in.ID, in.VolumeID, in.Device = id(attachmentKind, 30), id(volumeKind, 4), "vdc"
		}), code: api.CodeInstanceBusy, text: "instance app"},
		"another volume moves": {before: inTurn(attached(func(in *api.AttachmentReserve) {
			in.ID, in.VolumeID, in.Device = id(attachmentKind, 30), id(volumeKind, 4), "vdc"
		}), func(t *testing.T, s *Store) {
			t.Helper()
			must(s.Migrations.Register(t.Context(), nobody, api.MigrationRegister{
				ID: id(migrationKind, 9), VolumeID: id(volumeKind, 4), SrcAttachmentID: id(attachmentKind, 30), DstAttachmentID: id(attachmentKind, 31),
				Host: hostA, Epoch: 1, Generation: 1, Dst: at("/slow/local"), Method: "overlay",
			}))(t)
		}), code: api.CodeInstanceBusy, text: "migration " + id(migrationKind, 9)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPauseSite(t)
			if tc.before != nil {
				tc.before(t, s)
			}
			if tc.volume == "" {
				tc.volume = "disk"
			}
			if tc.in == (api.MigrationTarget{}) {
				tc.in = toSAN
			}
			if tc.there == nil {
				tc.there = bothHere
			}
			err := unchanged(t, s, func() error { return second(s.Pauses.Register(t.Context(), nobody, tc.volume, tc.in, tc.there)) })
			wantCode(t, err, tc.code, tc.text)
		})
	}
}

// reportedAtRest makes the host of app report that its guest is paused by itself.
func reportedAtRest(rest api.InstanceState) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		in := reportOf(hostA, "a")
		in.Pools = pausePools()
		in.Instances = []api.InstanceReport{{ID: app, State: api.InstancePaused, Standstill: rest}}
		must(s.Reports.Receive(t.Context(), nobody, in))(t)
	}
}

func locked(instance string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(s.Instances.Lock(t.Context(), nobody, instance, api.InstanceLock{Reason: "backup"}))(t)
	}
}

func TestOneHostMovesWithinItsOwnPools(t *testing.T) {
	s := newPauseSite(t)
	must(s.Attachments.Release(t.Context(), nobody, next, api.AttachmentRelease{Host: hostB, Epoch: 1, OpID: "r", Force: true}))(t)
	attached(atWeb)(t, s)
	m := must(s.Pauses.Register(t.Context(), nobody, "disk", api.MigrationTarget{ToPool: "slow"}, []string{hostA}))(t)
	wantLocks(t, s, map[string]string{app: m.ID, web: m.ID})
}

func TestTheSameKeyIsTheSameMove(t *testing.T) {
	s := newPauseSite(t)
	keyed := store.Call{Who: "test", Key: "key-1"}
	m := must(s.Pauses.Register(t.Context(), keyed, "disk", toSAN, bothHere))(t)
	if again := must(s.Pauses.Register(t.Context(), keyed, "disk", toSAN, []string{hostA}))(t); again.ID != m.ID {
		t.Errorf("the same request made another move, %s", again.ID)
	}
}

func TestOfConcurrentMovesWithAllGuestsPausedOneWins(t *testing.T) {
	s := newPauseSite(t)
	var (
		wg   sync.WaitGroup
		errs [8]error
	)
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.Pauses.Register(t.Context(), nobody, "disk", toSAN, bothHere) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch api.CodeOf(err) {
		case "":
			won++
		case api.CodeMigrationActive:
		default:
			t.Errorf("error = %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

// In any order, no instance gets the volume unknown to the move.
func TestAMoveAndAnAttachThatComeAtOnceSeeEachOther(t *testing.T) {
	for range 20 {
		s := newPauseSite(t)
		third := reserve(func(in *api.AttachmentReserve) { in.ID, in.InstanceID = id(attachmentKind, 30), web })
		var (
			wg              sync.WaitGroup
			moving, reserve error
		)
		wg.Go(func() { _, moving = s.Pauses.Register(t.Context(), nobody, "disk", toSAN, bothHere) })
		wg.Go(func() { _, reserve = s.Attachments.Reserve(t.Context(), nobody, third) })
		wg.Wait()
		if (moving == nil) == (reserve == nil) {
			t.Fatalf("move: %v, attach: %v; want one of them refused", moving, reserve)
		}
		if code := api.CodeOf(moving) + api.CodeOf(reserve); code != api.CodeMigrationActive && code != api.CodeStateForbidden {
			t.Fatalf("refused as %s", code)
		}
	}
}

func TestTheFlipMovesVolumeAndAllAttachmentsAtOnce(t *testing.T) {
	s, p := flipped(t)
	v := must(s.Volumes.Get(t.Context(), disk, everyone))(t)
	if v.Location != made(p) || v.Generation != 2 || v.MigrationID != p.Migration.ID {
		t.Errorf("volume = %+v", v)
	}
	for _, a := range v.Attachments {
		if a.Location != made(p) || a.State != api.AttachmentAttached {
			t.Errorf("attachment = %+v", a)
		}
	}
	if p.Phase != PauseRestoring || p.DropEnd != api.DropSrc || p.Migration.State != api.MigrationCompleting || p.Migration.Phase != "restoring" {
		t.Errorf("move = %+v", p)
	}
	// Src stays reserved until it is deleted.
	squat := api.VolumeRegister{ID: id(volumeKind, 60), Name: "squat", Status: api.VolumeAvailable, Host: "a", Location: at("/nfs/disk")}
	_, err := s.Volumes.Register(t.Context(), nobody, squat)
	wantCode(t, err, api.CodeConflict, "/nfs/disk")
	_, err = s.Pauses.Cancel(t.Context(), nobody, p.Migration.ID, nil)
	wantCode(t, err, api.CodePastPointOfNoReturn, "is at /san/")

	p = awake(t, s, p)
	wantLocks(t, s, map[string]string{})
	_, err = s.Pauses.Finish(t.Context(), nobody, p.Migration.ID)
	wantCode(t, err, api.CodeConflict, "src")
	must(s.Pauses.SetCopy(t.Context(), nobody, p.Migration.ID, p.Phase, 0, "", nil))(t)
	p = must(s.Pauses.Finish(t.Context(), nobody, p.Migration.ID))(t)
	if p.Phase != PauseDone || p.Migration.State != api.MigrationCompleted || p.Migration.FinishedAt == nil || p.Migration.Error != nil {
		t.Errorf("move = %+v", p)
	}
	must(s.Volumes.Register(t.Context(), nobody, squat))(t)
	if open := must(s.Pauses.Open(t.Context()))(t); len(open) != 0 {
		t.Errorf("still looked after: %+v", open)
	}
}

func TestACancelledMoveLeavesEverythingAsItWas(t *testing.T) {
	s, p := newPause(t)
	before := must(s.Volumes.Get(t.Context(), disk, everyone))(t)
	asleep(t, s, p)
	must(s.Pauses.Copy(t.Context(), nobody, p.Migration.ID))(t)
	p = must(s.Pauses.Cancel(t.Context(), nobody, p.Migration.ID, api.Errorf(api.CodeNoSpace, "full")))(t)
	if p.DropEnd != api.DropDst || p.Migration.State != api.MigrationCancelling || p.Migration.Error == nil || p.Migration.Error.Code != api.CodeNoSpace {
		t.Errorf("move = %+v", p)
	}
	_, err := s.Pauses.Flip(t.Context(), nobody, p.Migration.ID, made(p))
	wantCode(t, err, api.CodeConflict, "cancelling")
	_, err = s.Pauses.Complete(t.Context(), nobody, p.Migration.ID)
	wantCode(t, err, api.CodeStateForbidden, "cancelled")
	_, err = s.Pauses.Finish(t.Context(), nobody, p.Migration.ID)
	wantCode(t, err, api.CodeConflict, "dst")
	p = awake(t, s, p)
	must(s.Pauses.SetCopy(t.Context(), nobody, p.Migration.ID, p.Phase, 0, "", nil))(t)
	p = must(s.Pauses.Finish(t.Context(), nobody, p.Migration.ID))(t)
	if p.Migration.State != api.MigrationCancelled || p.Migration.Error == nil || p.Migration.Error.Code != api.CodeNoSpace {
		t.Errorf("migration = %+v", p.Migration)
	}
	after := must(s.Volumes.Get(t.Context(), disk, everyone))(t)
	before.MigrationID = ""
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("volume (-before +after):\n%s", diff)
	}
	wantLocks(t, s, map[string]string{})
	for _, again := range []func() error{
		func() error { return second(s.Pauses.Cancel(t.Context(), nobody, p.Migration.ID, nil)) },
		func() error { return second(s.Pauses.Complete(t.Context(), nobody, p.Migration.ID)) },
	} {
		wantCode(t, again(), api.CodeNoMigration, "over")
	}
}

func TestNoStepOfAMoveIsMadeOutOfItsTurn(t *testing.T) {
	s, p := newPause(t)
	id := p.Migration.ID
	barrier := func(pass func() error, text string) {
		t.Helper()
		wantCode(t, unchanged(t, s, pass), api.CodeConflict, text)
	}
	suspend := func() error { return second(s.Pauses.Suspend(t.Context(), nobody, id)) }
	save := func() error { return second(s.Pauses.Save(t.Context(), nobody, id)) }
	copying := func() error { return second(s.Pauses.Copy(t.Context(), nobody, id)) }
	resume := func() error { return second(s.Pauses.Resume(t.Context(), nobody, id)) }
	finish := func() error { return second(s.Pauses.Finish(t.Context(), nobody, id)) }

	barrier(suspend, "is pending, not checked")
	barrier(save, "in phase checking")
	barrier(func() error { return second(s.Pauses.Flip(t.Context(), nobody, id, made(p))) }, "checking")
	barrier(finish, "checking")
	g := p.Instances[0]
	g.State = PauseRestored
	barrier(func() error { return second(s.Pauses.SetInstance(t.Context(), nobody, id, PauseChecking, g)) }, "pending")
	barrier(func() error { return second(s.Pauses.SetInstance(t.Context(), nobody, id, PauseCancelling, g)) }, "checking")
	g.State, g.SaveAttempt = PausePending, 2
	must(s.Pauses.SetInstance(t.Context(), nobody, id, PauseChecking, g))(t)
	g.SaveAttempt = 1
	barrier(func() error { return second(s.Pauses.SetInstance(t.Context(), nobody, id, PauseChecking, g)) }, "anew")

	p = must(s.Pauses.Get(t.Context(), id))(t)
	bring(t, s, p, PauseChecked)
	must(s.Pauses.Suspend(t.Context(), nobody, id))(t)
	barrier(save, "is checked, not suspended")
	p = bring(t, s, must(s.Pauses.Get(t.Context(), id))(t), PauseSuspended)
	must(s.Pauses.Save(t.Context(), nobody, id))(t)
	barrier(copying, "is suspended, not saved")
	p = bring(t, s, must(s.Pauses.Get(t.Context(), id))(t), PauseSaved)
	must(s.Pauses.Copy(t.Context(), nobody, id))(t)
	barrier(resume, "copying")
	p = must(s.Pauses.Flip(t.Context(), nobody, id, made(p)))(t)
	one := p.Instances[0]
	one.State = PauseReady
	p = must(s.Pauses.SetInstance(t.Context(), nobody, id, p.Phase, one))(t)
	barrier(resume, "is saved, not ready")
	one.State = PauseRestored
	barrier(func() error { return second(s.Pauses.SetInstance(t.Context(), nobody, id, p.Phase, one)) }, "cannot become")
}

func TestAnInstanceThatCannotBeRestoredNeedsAnOperatorAndIsTriedAgainUntilTheOthersRunOn(t *testing.T) {
	s, p := flipped(t)
	stuck, fine := p.Instances[0], p.Instances[1]
	stuck.Error = api.Errorf(api.CodeNeedsOperator, "the RAM is in /ram/app")
	p = must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, p.Phase, stuck))(t)
	if p.Migration.State != api.MigrationNeedsOperator || p.Migration.Error == nil || p.Migration.Phase != "restoring" {
		t.Errorf("migration = %+v", p.Migration)
	}
	p = must(s.Pauses.Complete(t.Context(), nobody, p.Migration.ID))(t)
	if p.Migration.State != api.MigrationCompleting || p.Migration.Error != nil || p.Instances[0].Attempt != 1 || p.Instances[0].Error != nil {
		t.Errorf("move = %+v", p)
	}
	if again := must(s.Pauses.Complete(t.Context(), nobody, p.Migration.ID))(t); again.Instances[0].Attempt != 1 {
		t.Errorf("move = %+v, want no other attempt", again)
	}
	stuck.Attempt = 1
	must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, p.Phase, stuck))(t)
	fine.State = PauseReady
	must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, p.Phase, fine))(t)
	p = must(s.Pauses.Resume(t.Context(), nobody, p.Migration.ID))(t)
	if p.Migration.Phase != "resuming" {
		t.Errorf("phase = %s", p.Migration.Phase)
	}
	must(s.Pauses.Permit(t.Context(), nobody, p.Migration.ID, permit(fine, api.PermitResume)))(t)
	fine.State = PauseRestored
	must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, p.Phase, fine))(t)
	wantLocks(t, s, map[string]string{stuck.ID: p.Migration.ID})

	err := unchanged(t, s, func() error { return second(s.Pauses.Complete(t.Context(), nobody, p.Migration.ID)) })
	wantCode(t, err, api.CodeStateForbidden, "migration complete "+p.Migration.ID+" --discard-memory")
	err = unchanged(t, s, func() error {
		return second(s.Pauses.Permit(t.Context(), nobody, p.Migration.ID, permit(stuck, api.PermitRestore)))
	})
	wantCode(t, err, api.CodeStateForbidden, "older than what instance "+fine.Name)
	p = must(s.Pauses.Discard(t.Context(), nobody, p.Migration.ID))(t)
	if g := p.Instances[0]; !g.Discard || g.Error != nil || g.Attempt != 2 || p.Instances[1].Discard || p.Migration.State != api.MigrationCompleting {
		t.Errorf("move = %+v", p)
	}
}

// One guest was resumed and then failed: its process has its memory, and no other guest has written
// since. The other guest is barred by it.
func TestTheWordThatGivesMemoryUpTakesNoGuestWhoseMemoryIsGood(t *testing.T) {
	s, p := flipped(t)
	id := p.Migration.ID
	barred, good := p.Instances[0], p.Instances[1]
	barred.Error = api.Errorf(api.CodeNeedsOperator, "the RAM is in /ram/app")
	must(s.Pauses.SetInstance(t.Context(), nobody, id, p.Phase, barred))(t)
	good.State = PauseReady
	must(s.Pauses.SetInstance(t.Context(), nobody, id, p.Phase, good))(t)
	must(s.Pauses.Resume(t.Context(), nobody, id))(t)
	must(s.Pauses.Permit(t.Context(), nobody, id, permit(good, api.PermitResume)))(t)
	good.Error = api.Errorf(api.CodeHypervisorUnavailable, "it was not resumed")
	p = must(s.Pauses.SetInstance(t.Context(), nobody, id, p.Phase, good))(t)
	const word = "volferryctl migration complete "
	if again, _ := p.Migration.Cures(); again != word+id+" --discard-memory, then volferryctl instance start "+barred.Name {
		t.Errorf("the commands are %q", again)
	}
	wantCode(t, second(s.Pauses.Complete(t.Context(), nobody, id)), api.CodeStateForbidden, "--discard-memory")

	p = must(s.Pauses.Discard(t.Context(), nobody, id))(t)
	if g := p.Instances[0]; !g.Discard || g.Error != nil || g.State != PauseSaved {
		t.Errorf("the one that is barred: %+v", g)
	}
	if g := p.Instances[1]; g.Discard || g.Error != nil || g.State != PauseReady || g.Attempt != 1 || p.Migration.State != api.MigrationCompleting {
		t.Errorf("the one that is not: %+v, move %s", g, p.Migration.State)
	}
	good.Attempt = 1
	p = must(s.Pauses.SetInstance(t.Context(), nobody, id, p.Phase, good))(t)
	if again, _ := p.Migration.Cures(); again != word+id {
		t.Errorf("the commands are %q", again)
	}
	p = must(s.Pauses.Discard(t.Context(), nobody, id))(t) // no other guest can be meant
	if g := p.Instances[1]; !g.Discard || g.Error != nil || g.State != PauseSaved {
		t.Errorf("the one that failed again: %+v", g)
	}
}

// permit returns the request of a guest's host.
func permit(g PauseInstance, to string) api.PausePermit {
	return api.PausePermit{InstanceID: g.ID, To: to, Host: g.Host.Name, Epoch: 1}
}

func TestAHostAsksBeforeItTouchesAGuest(t *testing.T) {
	s, p := newPause(t)
	id, g := p.Migration.ID, p.Instances[0]
	ask := func(to string) error {
		return second(s.Pauses.Permit(t.Context(), nobody, id, permit(g, to)))
	}
	want := func(allowed string) {
		t.Helper()
		for _, to := range []string{api.PermitSuspend, api.PermitRestore, api.PermitResume} {
			code := api.CodeStateForbidden
			if to == allowed {
				code = ""
			}
			if err := ask(to); api.CodeOf(err) != code {
				t.Errorf("%s: %v, want %q", to, err, code)
			}
		}
	}
	want("")
	bring(t, s, p, PauseChecked)
	p = must(s.Pauses.Suspend(t.Context(), nobody, id))(t)
	want(api.PermitSuspend)
	bring(t, s, p, PauseSuspended)
	bring(t, s, must(s.Pauses.Save(t.Context(), nobody, id))(t), PauseSaved)
	p = must(s.Pauses.Cancel(t.Context(), nobody, id, nil))(t)
	want(api.PermitRestore)
	bring(t, s, p, PauseReady)
	p = must(s.Pauses.Resume(t.Context(), nobody, id))(t)
	wantCode(t, ask("think"), api.CodeInvalidArgument, "think")
	wantCode(t, second(s.Pauses.Permit(t.Context(), as(hostB), id, permit(g, api.PermitResume))), api.CodeNotYourHost, "")
	foreign := permit(g, api.PermitResume)
	foreign.Host = "b"
	wantCode(t, second(s.Pauses.Permit(t.Context(), nobody, id, foreign)), api.CodeNotYourHost, "host a's")
	if err := ask(api.PermitResume); err != nil {
		t.Error(err)
	}
	// No other memory is restored after a guest was resumed.
	other := p.Instances[1]
	err := second(s.Pauses.Permit(t.Context(), nobody, id, permit(other, api.PermitRestore)))
	wantCode(t, err, api.CodeStateForbidden, "migration cancel "+id+" --discard-memory")
	if err := second(s.Pauses.Permit(t.Context(), nobody, id, permit(other, api.PermitResume))); err != nil {
		t.Errorf("at once with the first: %v", err)
	}
}

func TestAGuestThatWasResumedByHandBarsTheMemoryOfTheOthers(t *testing.T) {
	report := func(t *testing.T, s *Store, g PauseInstance, state api.InstanceState) {
		t.Helper()
		in := reportOf(g.Host.ID, g.Host.Name)
		in.Instances = []api.InstanceReport{{ID: g.ID, State: state, Note: "new"}} // so that it is stored in every state
		must(s.Reports.Receive(t.Context(), nobody, in))(t)
	}
	for name, tc := range map[string]struct {
		states []api.InstanceState // as the first guest's host reports them after its restore
		code   api.Code            // of a restore of the other guest
	}{
		"it stands still":                     {[]api.InstanceState{api.InstancePaused}, ""},
		"it was resumed":                      {[]api.InstanceState{api.InstancePaused, api.InstanceRunning}, api.CodeStateForbidden},
		"and put to rest again":               {[]api.InstanceState{api.InstancePaused, api.InstanceRunning, api.InstancePaused}, api.CodeStateForbidden},
		"only the report of before the move":  {[]api.InstanceState{api.InstanceRunning}, ""},
		"that, and that it stands still then": {[]api.InstanceState{api.InstanceRunning, api.InstancePaused}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := flipped(t)
			first, other := p.Instances[0], p.Instances[1]
			first.State = PauseReady
			p = must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, p.Phase, first))(t)
			for _, state := range tc.states {
				report(t, s, first, state)
			}
			err := second(s.Pauses.Permit(t.Context(), nobody, p.Migration.ID, permit(other, api.PermitRestore)))
			wantCode(t, err, tc.code, "")
			if tc.code != "" && !strings.Contains(err.Error(), first.Name) {
				t.Errorf("the refusal does not name %s: %v", first.Name, err)
			}
		})
	}
}

func TestAGuestThatTheMoveLetsRunOnIsNotTakenForOneThatWasResumedByHand(t *testing.T) {
	s, p := flipped(t)
	first := p.Instances[0]
	bring(t, s, p, PauseReady)
	p = must(s.Pauses.Resume(t.Context(), nobody, p.Migration.ID))(t)
	for _, state := range []api.InstanceState{api.InstancePaused, api.InstanceRunning} {
		in := reportOf(first.Host.ID, first.Host.Name)
		in.Instances = []api.InstanceReport{{ID: first.ID, State: state}}
		must(s.Reports.Receive(t.Context(), nobody, in))(t)
	}
	if p = must(s.Pauses.Get(t.Context(), p.Migration.ID))(t); !p.Instances[0].RanAt.IsZero() {
		t.Errorf("it ran at %s without having been asked for", p.Instances[0].RanAt)
	}
}

// Guests are resumed at once. For a delayed guest the volume would have changed under its memory.
func TestAGuestDoesNotRunOnLongAfterOneThatWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		writes bool
		after  time.Duration
		code   api.Code
	}{
		"at once":                         {true, resumeWindow - time.Second, ""},
		"late":                            {true, resumeWindow, api.CodeStateForbidden},
		"late, after one that only reads": {false, time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := flipped(t)
			bring(t, s, p, PauseReady)
			p = must(s.Pauses.Resume(t.Context(), nobody, p.Migration.ID))(t)
			p.Instances[0].Writes, p.Instances[0].RanAt = tc.writes, time.Unix(1000, 0)
			if err := p.memoryBarred(p.Instances[1], api.PermitResume, time.Unix(1000, 0).Add(tc.after)); api.CodeOf(err) != tc.code {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestOnlyTheReservedPlaceIsTakenFromTheCopyHost(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*api.Location)
		code api.Code
	}{
		"as reserved":              {func(*api.Location) {}, ""},
		"another path":             {func(l *api.Location) { l.Path = "/etc/shadow" }, api.CodeChainChanged},
		"another path in the pool": {func(l *api.Location) { l.Path = "/san/disk" }, api.CodeChainChanged},
		"a path below the pool":    {func(l *api.Location) { l.Path = "/san/below/" + l.Name }, api.CodeChainChanged},
		"another name":             {func(l *api.Location) { l.Name, l.Path = "disk", "/san/disk" }, api.CodeChainChanged},
		"another pool":             {func(l *api.Location) { l.Pool, l.Path = "nfs", "/nfs/"+l.Name }, api.CodeChainChanged},
		"no pool":                  {func(l *api.Location) { l.Pool, l.Name = "", "" }, api.CodeChainChanged},
		"another size":             {func(l *api.Location) { l.SizeBytes *= 2 }, api.CodeChainChanged},
		"a larger image":           {func(l *api.Location) { l.ImageBytes = 2 * l.SizeBytes }, api.CodeChainChanged},
		"another format":           {func(l *api.Location) { l.Format = api.FormatQcow2 }, api.CodeChainChanged},
		"a path with a way out":    {func(l *api.Location) { l.Path = "/san/../etc/" + l.Name }, api.CodeChainChanged},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := newPause(t)
			asleep(t, s, p)
			must(s.Pauses.Copy(t.Context(), nobody, p.Migration.ID))(t)
			dst := made(p)
			tc.edit(&dst)
			if _, err := s.Pauses.Flip(t.Context(), nobody, p.Migration.ID, dst); api.CodeOf(err) != tc.code && (tc.code == "" || api.CodeOf(err) != api.CodeInvalidArgument) {
				t.Errorf("error = %v, want %q", err, tc.code)
			}
		})
	}
}

// The same holds during its move.
func TestTheBeginningOfALargerImageStaysReservedAsSuch(t *testing.T) {
	s := newPauseSite(t)
	rawSQL("UPDATE locations SET image_bytes = 2 * size_bytes WHERE volume_id = '"+disk+"'")(t, s)
	m := must(s.Pauses.Register(t.Context(), nobody, "disk", toSAN, bothHere))(t)
	if !m.Src.IsSlice() {
		t.Fatalf("src is %+v", m.Src)
	}
	p := must(s.Pauses.Get(t.Context(), m.ID))(t)
	asleep(t, s, p)
	must(s.Pauses.Copy(t.Context(), nobody, m.ID))(t)
	must(s.Pauses.Flip(t.Context(), nobody, m.ID, made(p)))(t)
	if v := must(s.Volumes.Get(t.Context(), disk, everyone))(t); v.Location.IsSlice() {
		t.Errorf("the volume is at %+v", v.Location)
	}
	left := must(mutate(t.Context(), s.DB, nobody, "test.read", m.ID, func(ctx context.Context, tx *changeTx) (bytes int64, err error) {
		return bytes, tx.QueryRowContext(ctx, "SELECT image_bytes FROM locations WHERE migration_id = ?", m.ID).Scan(&bytes)
	}))(t)
	if left != m.Src.ImageBytes {
		t.Errorf("the place that is left is reserved with %d bytes, want %d", left, m.Src.ImageBytes)
	}
}

func TestALostInstanceIsNotWaitedForAndStaysLocked(t *testing.T) {
	s, p := flipped(t)
	must(s.Hosts.Fence(t.Context(), nobody, "b", api.HostFence{Evidence: "off", EvenIfUp: true}))(t)
	if m := must(s.Migrations.Get(t.Context(), p.Migration.ID, everyone))(t); m.State != api.MigrationCompleting {
		t.Errorf("migration = %+v", m)
	}
	p = must(s.Pauses.Get(t.Context(), p.Migration.ID))(t)
	lost := slices.IndexFunc(p.Instances, func(g PauseInstance) bool { return g.Host.Fenced })
	here, gone := p.Instances[1-lost], p.Instances[lost]
	gone.Lost = true
	must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, p.Phase, gone))(t)
	for _, state := range []string{PauseReady, PauseRestored} {
		here.State = state
		must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, p.Phase, here))(t)
		must(s.Pauses.Resume(t.Context(), nobody, p.Migration.ID))(t)
	}
	must(s.Pauses.SetCopy(t.Context(), nobody, p.Migration.ID, p.Phase, 0, "", nil))(t)
	must(s.Pauses.Finish(t.Context(), nobody, p.Migration.ID))(t)
	wantLocks(t, s, map[string]string{gone.ID: p.Migration.ID})
	must(s.Hosts.Rejoin(t.Context(), nobody, "b", api.HostRejoin{Epoch: 2}))(t)
	for _, to := range []string{api.PermitRestore, api.PermitResume} {
		in := permit(gone, to)
		in.Epoch = must(s.Hosts.Get(t.Context(), "b"))(t).Epoch
		wantCode(t, second(s.Pauses.Permit(t.Context(), nobody, p.Migration.ID, in)), api.CodeStateForbidden, "--discard-memory")
	}

	must(s.Hosts.Fence(t.Context(), nobody, "b", api.HostFence{Evidence: "off", EvenIfUp: true}))(t)
	must(s.Attachments.ForceDelete(t.Context(), nobody, next))(t)
	open := must(s.Pauses.Open(t.Context()))(t)
	if len(open) != 1 || open[0].Instances[lost].Attached {
		t.Fatalf("looked after = %+v", open)
	}
	gone.State = PauseRestored
	must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, PauseDone, gone))(t)
	wantLocks(t, s, map[string]string{})
	if open := must(s.Pauses.Open(t.Context()))(t); len(open) != 0 {
		t.Errorf("still looked after: %+v", open)
	}
}

// A host may move its own guests, and the daemon on the registry's machine all guests.
func TestAHostMovesWithItsOwnGuestsPausedAndNoOthers(t *testing.T) {
	s := newPauseSite(t)
	asA, asB := as(hostA), as(hostB)
	for who, call := range map[string]store.Call{"host a": asA, "host b": asB} {
		err := unchanged(t, s, func() error { return second(s.Pauses.Register(t.Context(), call, "disk", toSAN, bothHere)) })
		wantCode(t, err, api.CodeNotYourHost, "ask the registry: `volferryctl --socket")
		if t.Failed() {
			t.Fatalf("asked by %s", who)
		}
	}
	beside := asA
	beside.Host = &store.HostToken{ID: hostA, Epoch: 1, Local: true}
	m := must(s.Pauses.Register(t.Context(), beside, "disk", toSAN, bothHere))(t)
	for name, ask := range map[string]func(store.Call) error{
		"cancel":   func(c store.Call) error { return second(s.Pauses.Cancel(t.Context(), c, m.ID, nil)) },
		"complete": func(c store.Call) error { return second(s.Pauses.Complete(t.Context(), c, m.ID)) },
	} {
		wantCode(t, unchanged(t, s, func() error { return ask(asB) }), api.CodeNotYourHost, "cannot "+name)
	}
	// A host with a locked guest sees the migration.
	for _, host := range bothHere {
		if got := must(s.Migrations.Get(t.Context(), m.ID, store.Viewer{HostID: host}))(t); got.ID != m.ID {
			t.Errorf("host %s sees %+v", host, got)
		}
	}
	must(s.Pauses.Cancel(t.Context(), beside, m.ID, nil))(t)
}

func TestAHostMovesAloneWhatOnlyItsGuestsHave(t *testing.T) {
	s := newCluster(t)
	attached(nil)(t, s)
	in := api.MigrationTarget{ToPool: "slow", PauseAll: true}
	err := unchanged(t, s, func() error { return second(s.Pauses.Register(t.Context(), as(hostB), "disk", in, bothHere)) })
	wantCode(t, err, api.CodeNotYourHost, "")
	m := must(s.Pauses.Register(t.Context(), as(hostA), "disk", in, bothHere))(t)
	wantCode(t, second(s.Migrations.Get(t.Context(), m.ID, store.Viewer{HostID: hostB})), api.CodeNotYourHost, "")
	must(s.Pauses.Cancel(t.Context(), as(hostA), m.ID, nil))(t)
}

// A guest saved by another fenced host is restored and unlocked by the records of the move, which
// belongs to the copy host.
func TestAHostIsNotForgottenWhileAGuestOfItsMoveMayComeBack(t *testing.T) {
	s, p := flipped(t)
	for _, name := range []string{"a", "b"} {
		must(s.Hosts.Fence(t.Context(), nobody, name, cut))(t)
	}
	for _, g := range must(s.Pauses.Get(t.Context(), p.Migration.ID))(t).Instances {
		g.Lost = true
		p = must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, p.Phase, g))(t)
	}
	must(s.Pauses.SetCopy(t.Context(), nobody, p.Migration.ID, p.Phase, p.Attempt, "", nil))(t)
	must(s.Pauses.Resume(t.Context(), nobody, p.Migration.ID))(t)
	p = must(s.Pauses.Finish(t.Context(), nobody, p.Migration.ID))(t)
	copier := p.CopyHost.Name
	letGo := func(g PauseInstance) {
		t.Helper()
		for _, a := range must(s.Attachments.All(t.Context(), "", g.ID, everyone))(t) {
			must(s.Attachments.ForceDelete(t.Context(), nobody, a.ID))(t)
		}
		g.State = PauseRestored
		must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, p.Phase, g))(t)
	}
	var other PauseInstance
	for _, g := range p.Instances {
		if g.Host.Name != copier {
			other = g
			continue
		}
		letGo(g)
		must(s.Instances.Forget(t.Context(), nobody, g.ID, store.Forget{}))(t)
	}
	must(s.Instances.Forget(t.Context(), nobody, web, store.Forget{}))(t)
	wantCode(t, second(s.Hosts.Forget(t.Context(), nobody, copier, true)), api.CodeConflict, p.Migration.ID)
	wantLocks(t, s, map[string]string{other.ID: p.Migration.ID})
	letGo(other)
	must(s.Hosts.Forget(t.Context(), nobody, copier, true))(t)
	wantLocks(t, s, map[string]string{})
}
