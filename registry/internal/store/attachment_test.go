// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// The owner of a data volume may have set limits, a cache mode and a name.
func TestADetachedVolumeLeavesWhatItWasWithTheInstance(t *testing.T) {
	s := newCluster(t)
	attached(nil)(t, s)
	must(s.Attachments.Transition(t.Context(), nobody, first, attachmentStep(api.AttachmentDetaching, api.AttachmentAttached)))(t)
	in := release(false)
	in.Slot = &api.SlotDefinition{Disk: "<disk/>", SerialOfVolume: true}
	was := must(s.Attachments.Release(t.Context(), nobody, first, in))(t)
	got := must(s.Instances.Get(t.Context(), was.InstanceID, everyone))(t)
	if kept := got.Detached(was.VolumeID); kept == nil || kept.Device != was.Device || kept.Slot != *in.Slot {
		t.Errorf("kept %+v", kept)
	}
	attached(func(r *api.AttachmentReserve) { r.ID = next })(t, s)
	if got := must(s.Instances.Get(t.Context(), was.InstanceID, everyone))(t); got.Detached(was.VolumeID) != nil {
		t.Errorf("the instance has the volume again, and %+v", got.DetachedDisks)
	}
}

func TestAVolumeIsUpdatedWithItsStatus(t *testing.T) {
	s := newCluster(t)
	now := time.Now().Truncate(time.Microsecond).UTC()
	s.now = func() time.Time { return now }
	updated := func(what string) {
		t.Helper()
		if v := must(s.Volumes.Get(t.Context(), disk, everyone))(t); !v.UpdatedAt.Equal(now) {
			t.Errorf("%s at %s: the volume is as of %s", what, now, v.UpdatedAt)
		}
		now = now.Add(time.Minute)
	}
	now = now.Add(time.Minute)
	must(s.Attachments.Reserve(t.Context(), as(hostA, 1), reserve(nil)))(t)
	updated("reserved")
	must(s.Attachments.Transition(t.Context(), as(hostA, 1), first, attachmentStep(api.AttachmentAttaching, api.AttachmentReserved)))(t)
	updated("in use")
	must(s.Attachments.Release(t.Context(), as(hostA, 1), first, release(true)))(t)
	updated("available")
}

func TestAnAttachmentGoesFromReservedToReleased(t *testing.T) {
	s := newCluster(t)
	wantVolume(t, s, disk, api.VolumeAvailable, 0)
	a := must(s.Attachments.Reserve(t.Context(), as(hostA, 1), reserve(nil)))(t)
	if diff := cmp.Diff(a, must(s.Attachments.Get(t.Context(), first, everyone))(t)); diff != "" {
		t.Errorf("the answer is not what is stored (-answer +stored):\n%s", diff)
	}
	if a.State != api.AttachmentReserved || a.Host != "a" || a.Location != at("/nfs/disk") || a.BootIndex != nil {
		t.Errorf("attachment = %+v", a)
	}
	wantVolume(t, s, disk, api.VolumeReserved, 1)
	for _, step := range []api.AttachmentTransition{
		attachmentStep(api.AttachmentAttaching, api.AttachmentReserved),
		attachmentStep(api.AttachmentAttached, api.AttachmentAttaching),
		attachmentStep(api.AttachmentDetaching, api.AttachmentAttached),
		attachmentStep(api.AttachmentAttached, api.AttachmentDetaching),
		attachmentStep(api.AttachmentError, api.AttachmentAttached),
		attachmentStep(api.AttachmentDetaching, api.AttachmentAttached, api.AttachmentError),
	} {
		a := must(s.Attachments.Transition(t.Context(), as(hostA, 1), first, step))(t)
		if diff := cmp.Diff(a, must(s.Attachments.Get(t.Context(), first, everyone))(t)); diff != "" || a.State != step.To {
			t.Errorf("to %s: the answer is not what is stored (-answer +stored):\n%s", step.To, diff)
		}
		wantVolume(t, s, disk, api.VolumeInUse, 1)
	}
	if i := must(s.Instances.Get(t.Context(), app, everyone))(t); len(i.BlockDeviceMappings) != 1 || *i.BlockDeviceMappings[0].AttachmentID != first || i.BlockDeviceMappings[0].Mode != a.Mode {
		t.Errorf("mappings = %+v", i.BlockDeviceMappings)
	}
	if gone := must(s.Attachments.Release(t.Context(), as(hostA, 1), first, release(false)))(t); gone.ID != first || gone.State != api.AttachmentDetaching {
		t.Errorf("released = %+v", gone)
	}
	wantVolume(t, s, disk, api.VolumeAvailable, 0)
	if i := must(s.Instances.Get(t.Context(), app, everyone))(t); len(i.BlockDeviceMappings) != 0 {
		t.Errorf("the slot of a released volume stays: %+v", i.BlockDeviceMappings)
	}
	e := lastEvent(t, s)
	if e.What != "attachment.release" || e.From != "detaching" || e.Object != "attachment/"+first || e.Token == nil || *e.Token != (api.Token{Epoch: 1, Generation: 1}) || e.Details["volume_name"] != "disk" {
		t.Errorf("event = %+v", e)
	}
}

func TestOfTwoAttachmentsOnOneHostTheOtherStays(t *testing.T) {
	s := newCluster(t)
	inTurn(attached(nil), attached(atWeb))(t, s)
	wantVolume(t, s, disk, api.VolumeInUse, 2)
	other := must(s.Attachments.Get(t.Context(), next, everyone))(t)
	must(s.Attachments.Release(t.Context(), nobody, first, release(true)))(t)
	v := must(s.Volumes.Get(t.Context(), disk, everyone))(t)
	if diff := cmp.Diff([]api.Attachment{other}, v.Attachments); diff != "" || v.Status != api.VolumeInUse {
		t.Errorf("volume is %s; attachments (-before +after):\n%s", v.Status, diff)
	}
}

func TestASharedVolumeIsAttachedOnASecondHost(t *testing.T) {
	s := newCluster(t)
	attached(nil)(t, s)
	must(s.Attachments.Reserve(t.Context(), as(hostB, 1), reserve(atDB)))(t)
	wantVolume(t, s, disk, api.VolumeInUse, 2)
	migration := dataMigration()
	migration.VolumeID, migration.SrcAttachmentID, migration.DstAttachmentID = disk, first, id(attachmentKind, 9)
	wantCode(t, second(s.Migrations.Register(t.Context(), nobody, migration)), api.CodeMultiattached, "2 attachments")
}

func TestModeAndDeviceAreKept(t *testing.T) {
	s := newCluster(t)
	reserved(func(in *api.AttachmentReserve) { in.Mode, in.Device = api.ModeRO, "sdc" })(t, s)
	if a := must(s.Attachments.Get(t.Context(), first, everyone))(t); a.Mode != api.ModeRO || a.Device != "sdc" {
		t.Errorf("attachment = %+v", a)
	}
}

func TestTheRootSlotStaysWhenItsVolumeIsReleased(t *testing.T) {
	s := newCluster(t)
	instanceState(api.InstanceStopped, web)(t, s)
	must(s.Attachments.Transition(t.Context(), nobody, rootAt, attachmentStep(api.AttachmentDetaching, api.AttachmentAttached)))(t)
	must(s.Attachments.Release(t.Context(), nobody, rootAt, release(false)))(t)
	empty := must(s.Instances.Get(t.Context(), web, everyone))(t).BlockDeviceMappings[1]
	if empty.Device != "vda" || *empty.BootIndex != 0 || empty.VolumeID != nil {
		t.Errorf("root slot = %+v", empty)
	}
	a := must(s.Attachments.Reserve(t.Context(), nobody, reserve(func(in *api.AttachmentReserve) {
		in.InstanceID, in.VolumeID, in.Device, in.Root = web, root, "vda", true
	})))(t)
	if a.BootIndex == nil || *a.BootIndex != 0 {
		t.Errorf("attachment in the root slot = %+v", a)
	}
}

func TestRepeatedAttachmentCallsAreRecognisedWithoutAKey(t *testing.T) {
	s := newCluster(t)
	attached(nil)(t, s)
	wantNothingDone := func(what string, do func() (api.Attachment, error)) {
		t.Helper()
		err := unchanged(t, s, func() error {
			a, err := do()
			if a.State != api.AttachmentAttached {
				t.Errorf("%s: attachment = %+v", what, a)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantNothingDone("reserve", func() (api.Attachment, error) { return s.Attachments.Reserve(t.Context(), nobody, reserve(nil)) })
	wantNothingDone("complete", func() (api.Attachment, error) {
		return s.Attachments.Transition(t.Context(), nobody, first, attachmentStep(api.AttachmentAttached, api.AttachmentAttaching))
	})
}

func TestForceDeletesExactlyOneAttachmentOfAFencedHost(t *testing.T) {
	s := newCluster(t)
	inTurn(attached(nil), attached(atWeb), attached(func(in *api.AttachmentReserve) { atDB(in); in.ID = id(attachmentKind, 23) }), fenceA)(t, s)
	must(s.Attachments.ForceDelete(t.Context(), nobody, first))(t)
	v := must(s.Volumes.Get(t.Context(), disk, everyone))(t)
	if len(v.Attachments) != 2 || v.Attachments[0].ID != next || v.Attachments[0].State != api.AttachmentAttached {
		t.Errorf("attachments = %+v", v.Attachments)
	}
	if e := lastEvent(t, s); e.What != "attachment.force_delete" || e.Result != "ok" || e.Host != "a" {
		t.Errorf("event = %+v", e)
	}
	wantCode(t, second(s.Attachments.Release(t.Context(), as(hostA, 1), next, release(true))), api.CodeStaleEpoch, "fenced")
}

func TestOfTwoReservesAtOnceOneWins(t *testing.T) {
	s := newCluster(t)
	for round := range 50 {
		errs := together(2, func(n int) error {
			return second(s.Attachments.Reserve(t.Context(), nobody, reserve(func(in *api.AttachmentReserve) {
				in.ID, in.VolumeID, in.InstanceID = id(attachmentKind, 100+n), data, []string{web, app}[n]
			})))
		})
		won := wantOneWinner(t, round, errs, api.CodeVolumeInUse)
		must(s.Attachments.Release(t.Context(), nobody, id(attachmentKind, 100+won), release(false)))(t)
	}
}

func TestTheIndexHoldsAReservedVolume(t *testing.T) {
	s := newCluster(t)
	reserved(func(in *api.AttachmentReserve) { in.VolumeID = data })(t, s)
	reserved(atWeb)(t, s)
	for volume, locked := range map[string]bool{data: true, disk: false} {
		device := map[bool]string{true: "sda", false: "sdb"}[locked]
		_, err := s.sqlite.Write.ExecContext(t.Context(), `INSERT INTO attachments SELECT 'x' || volume_id, volume_id, '`+web+`', '`+device+`', mode, state, exclusive, NULL, '', 1, 1
			FROM attachments WHERE volume_id = ?`, volume)
		if strings.Contains(fmt.Sprint(err), "attachments.volume_id") != locked {
			t.Errorf("a second attachment of volume %s, past the rules: %v", volume, err)
		}
	}
}

// A reserve adds a second attachment and a register takes the lock; only one of them may succeed.
func TestOfReserveAndMigrationOneWins(t *testing.T) {
	s := newCluster(t)
	attached(func(in *api.AttachmentReserve) { in.VolumeID = local })(t, s)
	wins := map[int]int{}
	rounds := 1000
	if testing.Short() { // for the race detector
		rounds = 100
	}
	for round := range rounds {
		migration := api.MigrationRegister{
			ID: id(migrationKind, 100+round), VolumeID: local, SrcAttachmentID: first, DstAttachmentID: id(attachmentKind, 2000+round),
			Host: hostA, Epoch: 1, Generation: 1, Dst: at("/slow/local"), Method: "mirror", OpID: "op-m",
		}
		errs := together(2, func(n int) error {
			// The first caller has an advantage, so alternate.
			if (n+round)%2 == 0 {
				return second(s.Migrations.Register(t.Context(), nobody, migration))
			}
			return second(s.Attachments.Reserve(t.Context(), nobody, reserve(func(in *api.AttachmentReserve) { atWeb(in); in.VolumeID = local })))
		})
		if round%2 == 1 {
			errs[0], errs[1] = errs[1], errs[0]
		}
		switch {
		case errs[0] == nil && api.CodeOf(errs[1]) == api.CodeMigrationActive:
			wins[0]++
			must(s.Migrations.Transition(t.Context(), nobody, migration.ID, step(api.MigrationCancelled, api.MigrationStarting)))(t)
		case errs[1] == nil && api.CodeOf(errs[0]) == api.CodeMultiattached:
			wins[1]++
			must(s.Attachments.Release(t.Context(), nobody, next, release(false)))(t)
		default:
			t.Fatalf("round %d: migration %v, reserve %v", round, errs[0], errs[1])
		}
	}
	if wins[0] == 0 || wins[1] == 0 {
		t.Errorf("wins = %v; one of them never wins, so this shows nothing", wins)
	}
}

// together calls do n times concurrently.
func together(n int, do func(int) error) []error {
	errs := make([]error, n)
	ready := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-ready
			errs[i] = do(i)
		})
	}
	close(ready)
	wg.Wait()
	return errs
}

func wantOneWinner(t *testing.T, round int, errs []error, code api.Code) int {
	t.Helper()
	won := -1
	for n, err := range errs {
		switch {
		case err == nil && won < 0:
			won = n
		case api.CodeOf(err) != code:
			t.Fatalf("round %d: errors = %v", round, errs)
		}
	}
	if won < 0 {
		t.Fatalf("round %d: nobody won: %v", round, errs)
	}
	return won
}
