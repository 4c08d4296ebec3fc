// SPDX-License-Identifier: Apache-2.0

package store

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

func TestRegisteredMigrationReservesASecondAttachmentOfTheSameVolume(t *testing.T) {
	s := newSite(t)
	m := must(s.Migrations.Register(t.Context(), nobody, rootMigration()))(t)
	if m.State != api.MigrationStarting || m.InstanceID != web || m.Src != at("/fast/root") || m.Dst != at("/slow/root") || m.FinishedAt != nil {
		t.Errorf("migration = %+v", m)
	}
	v := must(s.Volumes.Get(t.Context(), root, everyone))(t)
	if len(v.Attachments) != 2 || v.MigrationID != move || v.Location != at("/fast/root") {
		t.Fatalf("volume = %+v, want two attachments and the lock", v)
	}
	src, dst := v.Attachments[0], v.Attachments[1]
	if src.ID != rootAt || src.State != api.AttachmentAttached || src.Location != at("/fast/root") {
		t.Errorf("src = %+v", src)
	}
	if dst.ID != rootTo || dst.State != api.AttachmentReserved || dst.Location != at("/slow/root") || dst.Device != "vda" || *dst.BootIndex != 0 || dst.VolumeID != root {
		t.Errorf("dst = %+v", dst)
	}
	if i := must(s.Instances.Get(t.Context(), "web", everyone))(t); *i.BlockDeviceMappings[1].AttachmentID != rootAt {
		t.Errorf("the slot shows the reservation: %+v", i.BlockDeviceMappings[1])
	}
}

func TestCompletedMigrationFlipsToDstAndFreesSrc(t *testing.T) {
	s := newSite(t)
	migrating(t, s)
	must(s.Migrations.Transition(t.Context(), nobody, move, step(api.MigrationCompleting, api.MigrationStarting)))(t)
	made := at("/slow/root-made")
	last := step(api.MigrationCompleted, api.MigrationCompleting)
	last.Dst = &made
	if m := must(s.Migrations.Transition(t.Context(), nobody, move, last))(t); m.State != api.MigrationCompleted || m.FinishedAt == nil || m.Dst != made {
		t.Errorf("migration = %+v", m)
	}
	v := must(s.Volumes.Get(t.Context(), "root", everyone))(t)
	if len(v.Attachments) != 1 || v.Attachments[0].ID != rootTo || v.Attachments[0].State != api.AttachmentAttached || v.Attachments[0].Location != made {
		t.Errorf("attachments = %+v, want dst alone", v.Attachments)
	}
	if v.Location != made || v.Generation != 2 || v.MigrationID != "" || v.Status != api.VolumeInUse {
		t.Errorf("volume = %+v", v)
	}
	wantFree(t, s, at("/fast/root"))
	wantMigratable(t, s, rootTo, 2)
}

func TestGivenUpMigrationLeavesSrcAsItWas(t *testing.T) {
	for _, end := range []api.MigrationState{api.MigrationCancelled, api.MigrationError} {
		t.Run(string(end), func(t *testing.T) {
			s := newSite(t)
			before := must(s.Volumes.Get(t.Context(), root, everyone))(t)
			migrating(t, s)
			in := step(end, api.MigrationStarting)
			in.Error = api.Errorf(api.CodeNoSpace, "full")
			if m := must(s.Migrations.Transition(t.Context(), nobody, move, in))(t); m.State != end || m.FinishedAt == nil || m.Error.Code != api.CodeNoSpace {
				t.Errorf("migration = %+v", m)
			}
			if diff := cmp.Diff(before, must(s.Volumes.Get(t.Context(), root, everyone))(t)); diff != "" {
				t.Errorf("volume (-before +after):\n%s", diff)
			}
			wantFree(t, s, at("/slow/root"))
			wantMigratable(t, s, rootAt, 1)
		})
	}
}

func TestMigrationOfAnUnattachedVolumeFlipsItsLocation(t *testing.T) {
	s := newSite(t)
	m := must(s.Migrations.Register(t.Context(), nobody, dataMigration()))(t)
	must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(api.MigrationCompleting, api.MigrationStarting)))(t)
	must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(api.MigrationCompleted, api.MigrationCompleting)))(t)
	v := must(s.Volumes.Get(t.Context(), "data", everyone))(t)
	if v.Location != at("/slow/data") || v.Generation != 2 || v.Status != api.VolumeAvailable || len(v.Attachments) != 0 {
		t.Errorf("volume = %+v", v)
	}
	wantFree(t, s, at("/fast/data"))
}

// wantMigratable requires that root is not locked.
func wantMigratable(t *testing.T, s *Store, src string, generation int64) {
	t.Helper()
	in := rootMigration()
	in.ID, in.SrcAttachmentID, in.DstAttachmentID = id(migrationKind, 7), src, id(attachmentKind, 7)
	in.Generation, in.Dst = generation, at("/slow/third")
	must(s.Migrations.Register(t.Context(), nobody, in))(t)
}

func TestOfConcurrentMigrationsOfOneVolumeOneWins(t *testing.T) {
	s := newSite(t)
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for n := range errs {
		wg.Go(func() {
			in := rootMigration()
			in.ID, in.DstAttachmentID, in.Dst = id(migrationKind, 100+n), id(attachmentKind, 100+n), at(filepath.Join("/slow", id("root", n)))
			_, errs[n] = s.Migrations.Register(t.Context(), nobody, in)
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			wantCode(t, err, api.CodeMigrationActive, "root")
		}
	}
	if won != 1 {
		t.Errorf("%d migrations won", won)
	}
}

// Once a migration is completing, dst may be the only good copy: the registry drops it only with
// NotSwitched from the host, and other reports of an end change nothing.
func TestDstIsNotDroppedOnceTheVolumeMayBeThere(t *testing.T) {
	for _, at := range []api.MigrationState{api.MigrationCompleting, api.MigrationNeedsOperator} {
		for _, to := range []api.MigrationState{api.MigrationError, api.MigrationCancelled} {
			t.Run(string(at)+" to "+string(to), func(t *testing.T) {
				s := newSite(t)
				m := must(s.Migrations.Register(t.Context(), nobody, dataMigration()))(t)
				must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(at, api.MigrationStarting)))(t)
				in := step(to, at)
				wantCode(t, unchanged(t, s, func() error { return second(s.Migrations.Transition(t.Context(), nobody, m.ID, in)) }), api.CodeStateForbidden, "only good copy")
				in.NotSwitched = true
				if got := must(s.Migrations.Transition(t.Context(), nobody, m.ID, in))(t); got.State != to {
					t.Errorf("migration = %+v", got)
				}
			})
		}
		for _, to := range []api.MigrationState{api.MigrationStarted, api.MigrationCancelling, api.MigrationCompleted} {
			t.Run(string(at)+" to "+string(to), func(t *testing.T) {
				s := newSite(t)
				m := must(s.Migrations.Register(t.Context(), nobody, dataMigration()))(t)
				must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(at, api.MigrationStarting)))(t)
				if got := must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(to, at)))(t); got.State != to || got.Dst.Path == "" {
					t.Errorf("migration = %+v", got)
				}
			})
		}
	}
}
