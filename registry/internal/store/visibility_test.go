// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// newTwoOwners returns a cluster where b has its own volume at db, and shares disk with a, which
// moves root.
func newTwoOwners(t *testing.T) *Store {
	t.Helper()
	s := newCluster(t)
	must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{ID: id(volumeKind, 5), Name: "theirs", Status: api.VolumeAvailable, Host: "b", Location: at("/fast/theirs")}))(t)
	theirs := func(in *api.AttachmentReserve) {
		in.ID, in.VolumeID, in.InstanceID, in.Host, in.Device = id(attachmentKind, 25), id(volumeKind, 5), db, hostB, "vdc"
	}
	inTurn(attached(nil), attached(atDB), attached(theirs), moving(rootMigration()))(t, s)
	return s
}

func TestAHostSeesWhatIsItsOwn(t *testing.T) {
	s := newTwoOwners(t)
	names := func(viewer Viewer) map[string][]string {
		seen := map[string][]string{}
		for _, v := range must(s.Volumes.All(t.Context(), viewer))(t) {
			seen["volumes"] = append(seen["volumes"], v.Name)
		}
		for _, i := range must(s.Instances.All(t.Context(), viewer))(t) {
			seen["instances"] = append(seen["instances"], i.Name)
		}
		for _, a := range must(s.Attachments.All(t.Context(), "", "", viewer))(t) {
			seen["attachments"] = append(seen["attachments"], a.ID)
		}
		for _, m := range must(s.Migrations.All(t.Context(), "", true, viewer))(t) {
			seen["migrations"] = append(seen["migrations"], m.ID)
		}
		slices.Sort(seen["attachments"])
		return seen
	}
	for viewer, want := range map[Viewer]map[string][]string{
		{}: {
			"volumes": {"data", "disk", "local", "root", "theirs"}, "instances": {"app", "db", "web"},
			"attachments": {rootAt, rootTo, first, next, id(attachmentKind, 25)}, "migrations": {move},
		},
		{HostID: hostA}: {
			"volumes": {"data", "disk", "local", "root"}, "instances": {"app", "web"}, "attachments": {rootAt, rootTo, first}, "migrations": {move},
		},
		{HostID: hostB}: {
			"volumes": {"disk", "theirs"}, "instances": {"db"}, "attachments": {next, id(attachmentKind, 25)},
		},
	} {
		if diff := cmp.Diff(want, names(viewer)); diff != "" {
			t.Errorf("host %q sees (-want +got):\n%s", viewer.HostID, diff)
		}
	}
	// A host that decides about a volume must see all its attachments.
	if v := must(s.Volumes.Get(t.Context(), disk, Viewer{hostB}))(t); len(v.Attachments) != 2 {
		t.Errorf("attachments = %+v", v.Attachments)
	}
	if got := must(s.Attachments.All(t.Context(), "disk", "", Viewer{hostB}))(t); len(got) != 1 || got[0].ID != next {
		t.Errorf("attachments of disk = %+v", got)
	}
}

func TestAHostSeesAVolumeInASharedPoolOnlyIfItHasThePool(t *testing.T) {
	s := newCluster(t)
	if v := must(s.Volumes.Get(t.Context(), disk, Viewer{hostB}))(t); v.ID != disk {
		t.Errorf("volume = %+v", v)
	}
	rawSQL("UPDATE pools SET shared = 0 WHERE host_id = '"+hostB+"'")(t, s)
	wantCode(t, second(s.Volumes.Get(t.Context(), disk, Viewer{hostB})), api.CodeNotYourHost, "another host")
}

func TestAnothersIsNotYourHosts(t *testing.T) {
	name := "x"
	b := as(hostB, 1)
	for what, do := range map[string]func(*testing.T, *Store) error{
		"see a volume":    func(t *testing.T, s *Store) error { return second(s.Volumes.Get(t.Context(), root, Viewer{hostB})) },
		"see an instance": func(t *testing.T, s *Store) error { return second(s.Instances.Get(t.Context(), "web", Viewer{hostB})) },
		"see an attachment": func(t *testing.T, s *Store) error {
			return second(s.Attachments.Get(t.Context(), first, Viewer{hostB}))
		},
		"see a migration": func(t *testing.T, s *Store) error { return second(s.Migrations.Get(t.Context(), move, Viewer{hostB})) },
		"register a volume": func(t *testing.T, s *Store) error {
			in := storetest.DataRegister()
			in.ID, in.Name = id(volumeKind, 9), "new"
			return second(s.Volumes.Register(t.Context(), b, in))
		},
		"change a volume": func(t *testing.T, s *Store) error {
			return second(s.Volumes.Update(t.Context(), b, data, api.VolumeUpdate{Name: &name}))
		},
		"transit a volume": func(t *testing.T, s *Store) error {
			return second(s.Volumes.Transition(t.Context(), b, data, api.VolumeTransition{From: api.VolumeAvailable, To: api.VolumeDeleting}))
		},
		"retype a volume": func(t *testing.T, s *Store) error {
			return second(s.Retypes.Retype(t.Context(), b, data, api.VolumeRetype{Type: "gold"}))
		},
		"forget a volume": func(t *testing.T, s *Store) error { return second(s.Volumes.Forget(t.Context(), b, data)) },
		"register an instance": func(t *testing.T, s *Store) error {
			in := storetest.WebRegister()
			in.ID = id(instanceKind, 9)
			return second(s.Instances.Register(t.Context(), b, in))
		},
		"forget an instance": func(t *testing.T, s *Store) error { return second(s.Instances.Forget(t.Context(), b, app, Forget{})) },
		"take back a volume": func(t *testing.T, s *Store) error {
			return second(s.Instances.Register(t.Context(), b, api.InstanceRegister{
				ID: id(instanceKind, 9), Name: "new", Host: "b", State: api.InstanceRunning,
				Disks: []api.AdoptedDisk{{VolumeID: data, VolumeName: "data", AttachmentID: id(attachmentKind, 30), Device: "vda", Mode: api.ModeRW, Location: at("/fast/data")}},
			}))
		},
		"register a migration": func(t *testing.T, s *Store) error {
			return second(s.Migrations.Register(t.Context(), b, dataMigration()))
		},
		"migrate from elsewhere": func(t *testing.T, s *Store) error {
			in := dataMigration()
			in.Host = hostB
			return second(s.Migrations.Register(t.Context(), b, in))
		},
		"transit a migration": func(t *testing.T, s *Store) error {
			return second(s.Migrations.Transition(t.Context(), b, move, step(api.MigrationStarted, api.MigrationStarting)))
		},
		"transit a migration as itself": func(t *testing.T, s *Store) error {
			in := step(api.MigrationStarted, api.MigrationStarting)
			in.Host = hostB
			return second(s.Migrations.Transition(t.Context(), b, move, in))
		},
		"transit an attachment": func(t *testing.T, s *Store) error {
			in := attachmentStep(api.AttachmentDetaching, api.AttachmentAttached)
			in.Host = hostB
			return second(s.Attachments.Transition(t.Context(), b, first, in))
		},
		"release an attachment": func(t *testing.T, s *Store) error {
			return second(s.Attachments.Release(t.Context(), b, first, api.AttachmentRelease{Host: hostB, Epoch: 1, Force: true}))
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newTwoOwners(t)
			wantCode(t, unchanged(t, s, func() error { return do(t, s) }), api.CodeNotYourHost, "")
		})
	}
}

func TestAHostChangesWhatIsItsOwn(t *testing.T) {
	s := newTwoOwners(t)
	a, name := as(hostA, 1), "renamed"
	must(s.Volumes.Update(t.Context(), a, data, api.VolumeUpdate{Name: &name}))(t)
	must(s.Retypes.Retype(t.Context(), a, data, api.VolumeRetype{Type: "gold"}))(t)
	must(s.Volumes.Forget(t.Context(), a, data))(t)
	must(s.Migrations.Transition(t.Context(), a, move, step(api.MigrationCancelled, api.MigrationStarting)))(t)
	must(s.Attachments.Release(t.Context(), a, first, release(true)))(t)
	must(s.Instances.Forget(t.Context(), a, web, Forget{}))(t)
	// b reaches disk, so it may move disk when no host has it.
	must(s.Attachments.Release(t.Context(), as(hostB, 1), next, api.AttachmentRelease{Host: hostB, Epoch: 1, Force: true}))(t)
	in := diskMigration()
	in.Host = hostB
	must(s.Migrations.Register(t.Context(), as(hostB, 1), in))(t)
}
