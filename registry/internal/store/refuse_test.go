// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// refusal is a request that a rule forbids. before, if not nil, brings the site into the necessary
// state.
type refusal struct {
	before func(*testing.T, *Store)
	do     func(*testing.T, *Store) error
	code   api.Code
	text   string
}

func checkRefusals(t *testing.T, cases map[string]refusal) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kit.WantRefused(t, newSite(t), tc.before, tc.do, tc.code, tc.text)
		})
	}
}

// migrate registers the migration of root, changed by edit.
func migrate(edit func(*api.MigrationRegister)) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error {
		in := rootMigration()
		edit(&in)
		_, err := s.Migrations.Register(t.Context(), nobody, in)
		return err
	}
}

// transit makes a transition of root's migration.
func transit(in api.MigrationTransition) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error {
		_, err := s.Migrations.Transition(t.Context(), nobody, move, in)
		return err
	}
}

func TestMigrationsThatAreRefused(t *testing.T) {
	checkRefusals(t, map[string]refusal{
		"locked volume": {
			before: migrating, code: api.CodeMigrationActive, text: "cannot migrate volume root: migration " + move,
			do: migrate(func(m *api.MigrationRegister) { m.ID = id(migrationKind, 9) }),
		},
		"two attachments": {
			before: attachTwice, code: api.CodeMultiattached, text: "cannot migrate volume root: it has 2 attachments; detach all but one, or move it with --live-shared, while its guests write, or with --pause-all,",
			do: migrate(func(*api.MigrationRegister) {}),
		},
		"stale generation": {
			code: api.CodeStaleGeneration, text: "generation 1 and the request is of generation 7",
			do: migrate(func(m *api.MigrationRegister) { m.Generation = 7 }),
		},
		"stale epoch": {
			code: api.CodeStaleEpoch, text: "host a is in epoch 1",
			do: migrate(func(m *api.MigrationRegister) { m.Epoch = 0 }),
		},
		"another host's instance": {
			code: api.CodeNotYourHost, text: "host a",
			do: migrate(func(m *api.MigrationRegister) { m.Host = "b" }),
		},
		"another host's volume": {
			code: api.CodeNotYourHost, text: "host a",
			do: func(t *testing.T, s *Store) error {
				in := dataMigration()
				in.Host = "b"
				_, err := s.Migrations.Register(t.Context(), nobody, in)
				return err
			},
		},
		"unknown volume": {
			code: api.CodeNotFound, text: "there is no volume",
			do: migrate(func(m *api.MigrationRegister) { m.VolumeID = id(volumeKind, 9) }),
		},
		"unknown host": {
			code: api.CodeNotFound, text: `there is no host "c"`,
			do: migrate(func(m *api.MigrationRegister) { m.Host = "c" }),
		},
		"another attachment": {
			code: api.CodeConflict, text: "it is attached by " + rootAt,
			do: migrate(func(m *api.MigrationRegister) { m.SrcAttachmentID = id(attachmentKind, 9) }),
		},
		"detached meanwhile": {
			before: func(t *testing.T, s *Store) { must(s.Instances.Forget(t.Context(), nobody, web, Forget{}))(t) },
			code:   api.CodeConflict, text: "no host has it at an instance any more",
			do: migrate(func(*api.MigrationRegister) {}),
		},
		"attached meanwhile": {
			code: api.CodeConflict, text: "it is attached by",
			do: migrate(func(m *api.MigrationRegister) { m.SrcAttachmentID, m.DstAttachmentID = "", "" }),
		},
		"volume in the making": {
			before: func(t *testing.T, s *Store) {
				must(s.Volumes.Transition(t.Context(), nobody, data, api.VolumeTransition{From: api.VolumeAvailable, To: api.VolumeDeleting}))(t)
			},
			code: api.CodeVolumeNotAvailable, text: "cannot migrate volume data: it is deleting",
			do: func(t *testing.T, s *Store) error {
				_, err := s.Migrations.Register(t.Context(), nobody, dataMigration())
				return err
			},
		},
		"same place": {
			code: api.CodeSameLocation, text: "/fast/root",
			do: migrate(func(m *api.MigrationRegister) { m.Dst = at("/fast/root") }),
		},
		"512 bytes too large": {
			code: api.CodeSizeMismatch, text: "has 1048576 bytes and the destination 1049088",
			do: migrate(func(m *api.MigrationRegister) { m.Dst.SizeBytes += 512 }),
		},
		"over base images of which the volume has none": {
			code: api.CodeInvalidArgument, text: "other base images than volume root",
			do: migrate(func(m *api.MigrationRegister) {
				m.Dst.Format, m.Dst.Backing = api.FormatQcow2, api.NewBacking([]api.BaseImage{{Path: "/fast/base", Format: api.FormatRaw}})
			}),
		},
		"a LUKS container to a place that is said to be none": {
			before: rawSQL("UPDATE locations SET luks_secret = '" + web + "' WHERE volume_id = '" + root + "'"),
			code:   api.CodeUnsupportedDisk, text: "a move keeps what opens it",
			do: migrate(func(*api.MigrationRegister) {}),
		},
		"to a LUKS container of what is none": {
			code: api.CodeUnsupportedDisk, text: "a move keeps what opens it",
			do: migrate(func(m *api.MigrationRegister) { m.Dst.LUKSSecret = web }),
		},
		"to a LUKS container without a secret": {
			code: api.CodeInvalidArgument, text: "LUKS secret",
			do: migrate(func(m *api.MigrationRegister) { m.Dst.LUKSSecret = "web" }),
		},
		"to qcow2 that is said to be a LUKS container": {
			code: api.CodeInvalidArgument, text: "LUKS container",
			do: migrate(func(m *api.MigrationRegister) { m.Dst.LUKSSecret, m.Dst.Format = web, api.FormatQcow2 }),
		},
		"dst of another volume": {
			code: api.CodeDstInUse, text: "taken by volume data",
			do: migrate(func(m *api.MigrationRegister) { m.Dst = at("/fast/data") }),
		},
		"dst of another migration": {
			before: func(t *testing.T, s *Store) { must(s.Migrations.Register(t.Context(), nobody, dataMigration()))(t) },
			code:   api.CodeDstInUse, text: "of volume data",
			do: migrate(func(m *api.MigrationRegister) { m.Dst = at("/slow/data") }),
		},
		"dst of another volume by pool and name": {
			code: api.CodeDstInUse, text: "taken by volume data",
			do: migrate(func(m *api.MigrationRegister) { m.Dst = at("/fast/data"); m.Dst.Path = "" }),
		},
		"place that the type forbids": {
			before: func(t *testing.T, s *Store) {
				pools := []string{"fast"}
				must(s.Types.Update(t.Context(), nobody, DefaultType, api.VolumeTypeUpdate{Pools: &pools}))(t)
			},
			code: api.CodePolicyDenied, text: "type default",
			do: migrate(func(m *api.MigrationRegister) { m.Dst.Pool = "slow" }),
		},
		"id of another migration": {
			before: migrating, code: api.CodeConflict, text: "taken by a migration of volume root",
			do: func(t *testing.T, s *Store) error {
				in := dataMigration()
				in.ID = move
				_, err := s.Migrations.Register(t.Context(), nobody, in)
				return err
			},
		},
		"id of the dst attachment taken": {
			code: api.CodeConflict, text: "attachment with the id " + rootAt,
			do: migrate(func(m *api.MigrationRegister) { m.DstAttachmentID = rootAt }),
		},
		"one attachment of two": {
			code: api.CodeInvalidArgument, text: "both attachments",
			do: migrate(func(m *api.MigrationRegister) { m.DstAttachmentID = "" }),
		},
	})
}

func TestTransitionsOfMigrationsThatAreRefused(t *testing.T) {
	finish := func(states ...api.MigrationState) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			migrating(t, s)
			from := api.MigrationStarting
			for _, to := range states {
				must(s.Migrations.Transition(t.Context(), nobody, move, step(to, from)))(t)
				from = to
			}
		}
	}
	stale, elsewhere := step(api.MigrationStarted, api.MigrationStarting), step(api.MigrationStarted, api.MigrationStarting)
	stale.Epoch = 2
	elsewhere.Host = "b"
	grown := at("/slow/root")
	grown.SizeBytes += 512
	wrongDst := step(api.MigrationStarted, api.MigrationStarting)
	wrongDst.Dst = &grown
	takenDst := step(api.MigrationStarted, api.MigrationStarting)
	taken := at("/fast/data")
	takenDst.Dst = &taken
	checkRefusals(t, map[string]refusal{
		"lost race":             {finish(api.MigrationStarted), transit(step(api.MigrationCopying, api.MigrationStarting)), api.CodeConflict, "is started"},
		"complete after cancel": {finish(api.MigrationCancelled), transit(step(api.MigrationCompleting, api.MigrationStarted)), api.CodeNoMigration, "it is cancelled"},
		"cancel after complete": {finish(api.MigrationCompleting, api.MigrationCompleted), transit(step(api.MigrationCancelling, api.MigrationCompleting)), api.CodeNoMigration, "it is completed"},
		"go on after error":     {finish(api.MigrationError), transit(step(api.MigrationStarted, api.MigrationError)), api.CodeNoMigration, "it is error"},
		"complete unannounced":  {finish(api.MigrationStarted), transit(step(api.MigrationCompleted, api.MigrationStarted)), api.CodeStateForbidden, "cannot become completed"},
		"back to the start":     {finish(), transit(step(api.MigrationStarting, api.MigrationStarting)), api.CodeInvalidArgument, "starting"},
		"unknown state":         {finish(), transit(step("gone", api.MigrationStarting)), api.CodeInvalidArgument, "gone"},
		"from nowhere":          {finish(), transit(step(api.MigrationStarted)), api.CodeInvalidArgument, "missing"},
		"stale epoch":           {finish(), transit(stale), api.CodeStaleEpoch, "epoch 2"},
		"another host":          {finish(), transit(elsewhere), api.CodeNotYourHost, "host a"},
		"dst that grew":         {finish(), transit(wrongDst), api.CodeSizeMismatch, "1049088"},
		"dst that is taken":     {finish(), transit(takenDst), api.CodeDstInUse, "volume data"},
		"unknown migration":     {nil, transit(step(api.MigrationStarted, api.MigrationStarting)), api.CodeNotFound, "no migration"},
	})
}

func TestVolumeChangesThatAreRefused(t *testing.T) {
	register := func(edit func(*api.VolumeRegister)) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error {
			in := api.VolumeRegister{ID: id(volumeKind, 9), Name: "new", Status: api.VolumeCreating, Host: "a", Location: at("/fast/new")}
			edit(&in)
			_, err := s.Volumes.Register(t.Context(), nobody, in)
			return err
		}
	}
	remove := func(ref string) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error { _, err := s.Volumes.Forget(t.Context(), nobody, ref); return err }
	}
	transition := func(ref string, from, to api.VolumeStatus) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error {
			_, err := s.Volumes.Transition(t.Context(), nobody, ref, api.VolumeTransition{From: from, To: to})
			return err
		}
	}
	name := "root"
	moving := func(t *testing.T, s *Store) { must(s.Migrations.Register(t.Context(), nobody, dataMigration()))(t) }
	broken := func(t *testing.T, s *Store) {
		must(s.Volumes.Transition(t.Context(), nobody, data, api.VolumeTransition{From: api.VolumeAvailable, To: api.VolumeError}))(t)
	}
	checkRefusals(t, map[string]refusal{
		"name taken":     {nil, register(func(v *api.VolumeRegister) { v.Name = "root" }), api.CodeConflict, "volume root already"},
		"id taken":       {nil, register(func(v *api.VolumeRegister) { v.ID = root }), api.CodeConflict, root},
		"place taken":    {nil, register(func(v *api.VolumeRegister) { v.Location = at("/fast/root") }), api.CodeConflict, "taken by volume root"},
		"dst taken":      {migrating, register(func(v *api.VolumeRegister) { v.Location = at("/slow/root") }), api.CodeConflict, "taken by migration " + move},
		"unknown type":   {nil, register(func(v *api.VolumeRegister) { v.Type = "gold" }), api.CodeNotFound, "gold"},
		"unknown host":   {nil, register(func(v *api.VolumeRegister) { v.Host = "" }), api.CodeInvalidArgument, "host is missing"},
		"in-use at once": {nil, register(func(v *api.VolumeRegister) { v.Status = api.VolumeInUse }), api.CodeInvalidArgument, "in-use"},
		"rename to a taken name": {nil, func(t *testing.T, s *Store) error {
			_, err := s.Volumes.Update(t.Context(), nobody, data, api.VolumeUpdate{Name: &name})
			return err
		}, api.CodeConflict, "volume root already"},
		"delete while attached":      {nil, remove(root), api.CodeVolumeInUse, "attached to instance web"},
		"forget while migrating":     {moving, remove("data"), api.CodeMigrationActive, "cannot forget volume data: migration " + id(migrationKind, 2)},
		"delete the unknown":         {nil, remove("gone"), api.CodeNotFound, "gone"},
		"lost race":                  {broken, transition("data", api.VolumeAvailable, api.VolumeDeleting), api.CodeConflict, "is error, no longer available"},
		"transition while migrating": {moving, transition("data", api.VolumeAvailable, api.VolumeDeleting), api.CodeMigrationActive, "data"},
		"reserved by decree":         {nil, transition("data", api.VolumeAvailable, api.VolumeReserved), api.CodeInvalidArgument, "reserved"},
		"in-use by decree":           {nil, transition("data", api.VolumeAvailable, api.VolumeInUse), api.CodeInvalidArgument, "in-use"},
		"out of use by decree":       {nil, transition("root", api.VolumeInUse, api.VolumeAvailable), api.CodeInvalidArgument, "in-use"},
		"relocate without migration": {nil, func(t *testing.T, s *Store) error {
			l := at("/fast/elsewhere")
			_, err := s.Volumes.Transition(t.Context(), nobody, "data", api.VolumeTransition{From: api.VolumeAvailable, To: api.VolumeError, Location: &l})
			return err
		}, api.CodeStateForbidden, "only a migration"},
	})
}

func TestInstanceAndTypeChangesThatAreRefused(t *testing.T) {
	register := func(edit func(*api.InstanceRegister)) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error {
			in := storetest.WebRegister()
			in.ID, in.Name = id(instanceKind, 9), "new"
			in.Disks[0].VolumeID, in.Disks[0].VolumeName, in.Disks[0].AttachmentID = id(volumeKind, 9), "new", id(attachmentKind, 9)
			in.Disks[0].Location = at("/fast/new")
			edit(&in)
			_, err := s.Instances.Register(t.Context(), nobody, in)
			return err
		}
	}
	updateType := func(ref string, in api.VolumeTypeUpdate) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error { _, err := s.Types.Update(t.Context(), nobody, ref, in); return err }
	}
	removeType := func(ref string) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error { _, err := s.Types.Delete(t.Context(), nobody, ref); return err }
	}
	gold := func(t *testing.T, s *Store) {
		must(s.Types.Create(t.Context(), nobody, api.VolumeTypeCreate{Name: "gold"}))(t)
		must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{
			ID: id(volumeKind, 8), Name: "nugget", Status: api.VolumeAvailable, Type: "gold", Host: "a", Location: at("/fast/nugget"),
		}))(t)
	}
	yes, other := true, "other"
	checkRefusals(t, map[string]refusal{
		"adopted already":    {nil, register(func(i *api.InstanceRegister) { i.ID = web }), api.CodeConflict, "adopted already"},
		"name taken on host": {nil, register(func(i *api.InstanceRegister) { i.Name = "web" }), api.CodeConflict, "forget that one"},
		"disk of a volume":   {nil, register(func(i *api.InstanceRegister) { i.Disks[0].Location = at("/fast/data") }), api.CodeConflict, "volume data"},
		"device twice":       {nil, register(func(i *api.InstanceRegister) { i.Slots[0].Device = "vda" }), api.CodeInvalidArgument, "vda twice"},
		"boot index twice":   {nil, register(func(i *api.InstanceRegister) { i.Slots[0].BootIndex = i.Disks[0].BootIndex }), api.CodeInvalidArgument, "boot index 0 twice"},
		"volume in a slot":   {nil, register(func(i *api.InstanceRegister) { i.Slots[0].VolumeID = &other }), api.CodeInvalidArgument, "disks"},
		"unknown mode":       {nil, register(func(i *api.InstanceRegister) { i.Disks[0].Mode = "x" }), api.CodeInvalidArgument, "rw and ro"},
		"unknown state":      {nil, register(func(i *api.InstanceRegister) { i.State = "dancing" }), api.CodeInvalidArgument, "dancing"},
		"forget while migrating": {migrating, func(t *testing.T, s *Store) error {
			_, err := s.Instances.Forget(t.Context(), nobody, "web", Forget{})
			return err
		}, api.CodeMigrationActive, "cannot forget instance web: migration " + move},
		"multiattach under an attached volume": {nil, updateType(DefaultType, api.VolumeTypeUpdate{Multiattach: &yes}), api.CodeInUseRetype, "volume root is attached"},
		"rename default":                       {nil, updateType(DefaultType, api.VolumeTypeUpdate{Name: &other}), api.CodeStateForbidden, "default"},
		"delete default":                       {nil, removeType(DefaultType), api.CodeStateForbidden, "default"},
		"delete a used type":                   {gold, removeType("gold"), api.CodeConflict, "1 volume"},
		"type name taken": {nil, func(t *testing.T, s *Store) error {
			_, err := s.Types.Create(t.Context(), nobody, api.VolumeTypeCreate{Name: DefaultType})
			return err
		}, api.CodeConflict, "default already"},
		"host name taken": {nil, func(t *testing.T, s *Store) error {
			_, err := s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: id(hostKind, 9), Name: "a"})
			return err
		}, api.CodeConflict, "reports right now; give one of the two another name"},
	})
}

func TestValuesThatAreRefused(t *testing.T) {
	for name, edit := range map[string]func(*api.VolumeRegister){
		"no id":                func(v *api.VolumeRegister) { v.ID = "" },
		"id that is no UUID":   func(v *api.VolumeRegister) { v.ID = "1" },
		"id in upper case":     func(v *api.VolumeRegister) { v.ID = strings.ToUpper("abcdefab-0000-4000-8000-000000000001") },
		"no name":              func(v *api.VolumeRegister) { v.Name = "" },
		"10,000 characters":    func(v *api.VolumeRegister) { v.Name = strings.Repeat("x", 10_000) },
		"control character":    func(v *api.VolumeRegister) { v.Name = "a\nb" },
		"slash":                func(v *api.VolumeRegister) { v.Name = "a/b" },
		"leading hyphen":       func(v *api.VolumeRegister) { v.Name = "-a" },
		"negative size":        func(v *api.VolumeRegister) { v.Location.SizeBytes = -512 },
		"no size":              func(v *api.VolumeRegister) { v.Location.SizeBytes = 0 },
		"half a sector":        func(v *api.VolumeRegister) { v.Location.SizeBytes = 768 },
		"unknown format":       func(v *api.VolumeRegister) { v.Location.Format = "vmdk" },
		"no format":            func(v *api.VolumeRegister) { v.Location.Format = "" },
		"relative path":        func(v *api.VolumeRegister) { v.Location.Path = "fast/new" },
		"path with dots":       func(v *api.VolumeRegister) { v.Location.Path = "/fast/../etc/shadow" },
		"path with a newline":  func(v *api.VolumeRegister) { v.Location.Path = "/fast/a\nb" },
		"path that is no text": func(v *api.VolumeRegister) { v.Location.Path = "/fast/\xff" },
		"endless path":         func(v *api.VolumeRegister) { v.Location.Path = "/" + strings.Repeat("x", 5000) },
		"root directory":       func(v *api.VolumeRegister) { v.Location.Path = "/" },
		"no place":             func(v *api.VolumeRegister) { v.Location.Path, v.Location.Pool = "", "" },
		"escape in the pool":   func(v *api.VolumeRegister) { v.Location.Pool = "\x1b[2J" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			err := unchanged(t, s, func() error {
				in := api.VolumeRegister{ID: id(volumeKind, 9), Name: "new", Status: api.VolumeCreating, Host: "a", Location: at("/fast/new")}
				edit(&in)
				_, err := s.Volumes.Register(t.Context(), nobody, in)
				return err
			})
			wantCode(t, err, api.CodeInvalidArgument, "")
			if len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\n\x1b") || !utf8.ValidString(err.Error()) {
				t.Errorf("the message repeats what it refuses: %q", err)
			}
		})
	}
}
