// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// attachTwice makes the type of root multiattach and gives root a second attachment.
func attachTwice(t *testing.T, s *Store) {
	t.Helper()
	for _, q := range []string{
		"UPDATE volume_types SET multiattach = 1",
		"UPDATE attachments SET exclusive = 0",
		"INSERT INTO attachments SELECT '" + id(attachmentKind, 5) + "', volume_id, instance_id, 'sda', mode, 'reserved', 0, NULL, '', created_us, updated_us FROM attachments",
	} {
		if _, err := s.sqlite.Write.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheIndexesAreTheLocks(t *testing.T) {
	s := newSite(t)
	migrating(t, s)
	for what, insert := range map[string]string{
		"a second open migration": "INSERT INTO migrations SELECT 'x', volume_id, volume_name, instance_id, host_id, '', '', src, dst, method, '', 'started', NULL, '', NULL, 1, NULL FROM migrations",
		"a second attachment":     "INSERT INTO attachments SELECT 'x', volume_id, instance_id, 'sda', mode, 'attached', 1, NULL, '', 1, 1 FROM attachments WHERE migration_id IS NULL",
		"a device twice":          "INSERT INTO attachments SELECT 'x', '" + data + "', instance_id, device, mode, 'attached', 0, NULL, '', 1, 1 FROM attachments WHERE migration_id IS NULL",
		"a volume at two places":  "INSERT INTO locations SELECT NULL, volume_id, NULL, scope, '', '', '/x', format, size_bytes, 0, '', '', '' FROM locations WHERE volume_id = '" + data + "'",
		"two volumes at a place":  "INSERT INTO locations SELECT NULL, '" + root + "', '" + move + "', scope, '', '', path, format, size_bytes, 0, '', '', '' FROM locations WHERE volume_id = '" + data + "'",
		"a volume of no type":     "UPDATE volumes SET type_id = 'x'",
		"an unknown status":       "UPDATE volumes SET status = 'lost'",
		"an odd size":             "UPDATE locations SET size_bytes = 100",
		"an attached volume gone": "DELETE FROM volumes WHERE id = '" + root + "'",
	} {
		if _, err := s.sqlite.Write.ExecContext(t.Context(), insert); err == nil || !strings.Contains(err.Error(), "constraint") {
			t.Errorf("%s: error = %v, want a constraint", what, err)
		}
	}
}

func TestRenameAndReadWorkDuringAMigration(t *testing.T) {
	s := newSite(t)
	migrating(t, s)
	name := "renamed"
	if v := must(s.Volumes.Update(t.Context(), nobody, "root", api.VolumeUpdate{Name: &name}))(t); v.Name != name || v.ID != root {
		t.Errorf("volume = %+v", v)
	}
	if m := must(s.Migrations.Get(t.Context(), move, everyone))(t); m.VolumeName != name {
		t.Errorf("the migration still calls its volume %s", m.VolumeName)
	}
}

func TestForgottenInstanceLeavesItsVolumesAvailable(t *testing.T) {
	s := newSite(t)
	must(s.Instances.Forget(t.Context(), nobody, "web", Forget{}))(t)
	v := must(s.Volumes.Get(t.Context(), root, everyone))(t)
	if v.Status != api.VolumeAvailable || len(v.Attachments) != 0 {
		t.Errorf("volume = %+v", v)
	}
	must(s.Volumes.Forget(t.Context(), nobody, root))(t)
	wantCode(t, second(s.Volumes.Get(t.Context(), root, everyone)), api.CodeNotFound, root)
	wantFree(t, s, at("/fast/root"))
}

func TestPathOfAVolumeInTheMakingIsSettledWhenItIsMade(t *testing.T) {
	s := newSite(t)
	in := api.VolumeRegister{ID: id(volumeKind, 9), Name: "new", Status: api.VolumeCreating, Host: "a", Location: at("/fast/new")}
	in.Location.Path = ""
	must(s.Volumes.Register(t.Context(), nobody, in))(t)
	made := at("/fast/new")
	v := must(s.Volumes.Transition(t.Context(), nobody, "new", api.VolumeTransition{From: api.VolumeCreating, To: api.VolumeAvailable, Location: &made}))(t)
	if v.Location != made || v.Status != api.VolumeAvailable {
		t.Errorf("volume = %+v", v)
	}
}

func TestAPlaceIsOneHostsUnlessItsPoolIsShared(t *testing.T) {
	s := newSite(t)
	register := func(n int, host, pool, path string) error {
		l := at(path)
		l.Pool = pool
		return second(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{
			ID: id(volumeKind, n), Name: id("v", n), Status: api.VolumeAvailable, Host: host, Location: l,
		}))
	}
	if err := register(20, "b", "fast", "/fast/root"); err != nil {
		t.Errorf("the same path on another host: %v", err)
	}
	if err := register(21, "a", "nfs", "/nfs/x"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, register(22, "b", "nfs", "/nfs/x"), api.CodeConflict, "taken")
	wantCode(t, register(23, "b", "", "/nfs/x"), api.CodeConflict, "taken")
	if err := register(24, "b", "", "/nfs/y"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, register(25, "a", "nfs", "/nfs/y"), api.CodeConflict, "taken")
}

func TestRepeatedRequestIsAnsweredAndNotRepeated(t *testing.T) {
	s := newSite(t)
	call := Call{Who: "test", Key: "key-1"}
	first := must(s.Migrations.Register(t.Context(), call, rootMigration()))(t)
	must(s.Migrations.Transition(t.Context(), nobody, move, step(api.MigrationStarted, api.MigrationStarting)))(t)
	err := unchanged(t, s, func() error {
		again, err := s.Migrations.Register(t.Context(), call, rootMigration())
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("answers differ (-first +again):\n%s", diff)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	other := rootMigration()
	other.Dst = at("/elsewhere/root")
	wantCode(t, unchanged(t, s, func() error { return second(s.Migrations.Register(t.Context(), call, other)) }), api.CodeIdempotencyMismatch, "key-1")
	wantCode(t, unchanged(t, s, func() error { return second(s.Volumes.Forget(t.Context(), call, data)) }), api.CodeIdempotencyMismatch, "key-1")
}

func TestForgottenInstanceComesBackToItsVolumes(t *testing.T) {
	s := newSite(t)
	must(s.Instances.Forget(t.Context(), nobody, "web", Forget{}))(t)
	again := storetest.WebRegister()
	again.Disks[0].AttachmentID = id(attachmentKind, 7)
	must(s.Instances.Register(t.Context(), nobody, again))(t)
	v := must(s.Volumes.Get(t.Context(), root, everyone))(t)
	if v.Status != api.VolumeInUse || len(v.Attachments) != 1 || v.Attachments[0].ID != again.Disks[0].AttachmentID {
		t.Errorf("volume = %+v, want it in use by its new attachment", v)
	}
}

func TestDiskElsewhereIsNotTheVolumeThatItWas(t *testing.T) {
	s := newSite(t)
	must(s.Instances.Forget(t.Context(), nobody, "web", Forget{}))(t)
	again := storetest.WebRegister()
	again.Disks[0].Location.Pool, again.Disks[0].Location.Name, again.Disks[0].Location.Path = "", "", "/elsewhere/root.raw"
	wantCode(t, second(s.Instances.Register(t.Context(), nobody, again)), api.CodeConflict, "/elsewhere/root.raw")
}

func TestRefusedRequestMayBeTriedAgainUnderItsKey(t *testing.T) {
	s := newSite(t)
	call := Call{Key: "key-1"}
	wantCode(t, second(s.Volumes.Forget(t.Context(), call, root)), api.CodeVolumeInUse, "root")
	must(s.Instances.Forget(t.Context(), nobody, web, Forget{}))(t)
	must(s.Volumes.Forget(t.Context(), call, root))(t)
}

func TestSameMigrationAndSameOpAreRecognisedWithoutAKey(t *testing.T) {
	s := newSite(t)
	migrating(t, s)
	in := step(api.MigrationStarted, api.MigrationStarting)
	in.OpID = "op-7"
	must(s.Migrations.Transition(t.Context(), nobody, move, in))(t)
	err := unchanged(t, s, func() error {
		_, register := s.Migrations.Register(t.Context(), nobody, rootMigration())
		_, transition := s.Migrations.Transition(t.Context(), nobody, move, in)
		return errors.Join(register, transition)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestThingsAreFoundByIDNameAndPrefix(t *testing.T) {
	s := newSite(t)
	for _, ref := range []string{root, "root", root[:len(root)-1] + "1"} {
		if v := must(s.Volumes.Get(t.Context(), ref, everyone))(t); v.ID != root {
			t.Errorf("%s is %s", ref, v.ID)
		}
	}
	if a := must(s.Attachments.Get(t.Context(), rootAt[:4], everyone))(t); a.ID != rootAt {
		t.Errorf("attachment = %s", a.ID)
	}
	_, err := s.Volumes.Get(t.Context(), "3000", everyone)
	wantCode(t, err, api.CodeInvalidArgument, "more than one volume: "+root+" (host a), "+data+" (host a); give more")
	wantCode(t, second(s.Attachments.Get(t.Context(), rootAt[:3], everyone)), api.CodeNotFound, rootAt[:3])
	wantCode(t, second(s.Volumes.Get(t.Context(), "%", everyone)), api.CodeNotFound, "%")
	wantCode(t, second(s.Pools.Get(t.Context(), "fast", "")), api.CodeInvalidArgument, "2 hosts have a pool fast")
	if p := must(s.Pools.Get(t.Context(), "fast", "b"))(t); p.Host != "b" {
		t.Errorf("pool = %+v", p)
	}
}

// The name of an instance is its domain's, so it may be the beginning of any id.
func TestANameThatBeginsTheIDOfAnotherThingIsRefused(t *testing.T) {
	s := newSite(t)
	of := func(name, host string, n int) api.InstanceRegister {
		return api.InstanceRegister{ID: id("6000000a", n), Name: name, Host: host, State: api.InstanceStopped}
	}
	mine := must(s.Instances.Register(t.Context(), nobody, of("db1", "a", 1)))(t)
	other := must(s.Instances.Register(t.Context(), nobody, of("6000000a", "b", 2)))(t)
	own := must(s.Instances.Register(t.Context(), nobody, api.InstanceRegister{ID: id("7000000a", 1), Name: "7000", Host: "b", State: api.InstanceStopped}))(t)
	whole := must(s.Instances.Register(t.Context(), nobody, of(mine.ID, "b", 3)))(t)

	_, err := s.Instances.Get(t.Context(), "6000000a", everyone)
	wantCode(t, err, api.CodeInvalidArgument, `"6000000a" is the name of the instance `+other.ID+" (host b) and the beginning of the id "+mine.ID+" (host a)", "give the whole id")
	for ref, want := range map[string]string{mine.ID: mine.ID, other.ID: other.ID, whole.ID: whole.ID, "db1": mine.ID, "7000": own.ID, "7000000a": own.ID} {
		if i := must(s.Instances.Get(t.Context(), ref, everyone))(t); i.ID != want {
			t.Errorf("%s is %s, want %s", ref, i.ID, want)
		}
	}
}

// Names of hosts are in their certificates.
func TestAHostWhoseNameBeginsTheIDOfAnotherIsRefusedAlsoWhereItIsRemembered(t *testing.T) {
	s := newSite(t)
	must(s.Reports.Receive(t.Context(), nobody, reportOf(id("70000000", 1), hostA[:8], 1)))(t)
	_, err := s.Hosts.Fence(t.Context(), nobody, hostA[:8], api.HostFence{Evidence: "off", EvenIfUp: true})
	wantCode(t, err, api.CodeInvalidArgument, "is the name of the host "+id("70000000", 1)+" and the beginning of the id "+hostA)
}

func TestListsAndFilters(t *testing.T) {
	s := newSite(t)
	migrating(t, s)
	must(s.Migrations.Transition(t.Context(), nobody, move, step(api.MigrationCancelled, api.MigrationStarting)))(t)
	if n := len(must(s.Migrations.All(t.Context(), "", false, everyone))(t)); n != 0 {
		t.Errorf("open migrations = %d", n)
	}
	if n := len(must(s.Migrations.All(t.Context(), "root", true, everyone))(t)); n != 1 {
		t.Errorf("all migrations of root = %d", n)
	}
	if n := len(must(s.Migrations.All(t.Context(), "data", true, everyone))(t)); n != 0 {
		t.Errorf("all migrations of data = %d", n)
	}
	if n := len(must(s.Attachments.All(t.Context(), "root", "web", everyone))(t)); n != 1 {
		t.Errorf("attachments = %d", n)
	}
	if n := len(must(s.Attachments.All(t.Context(), "data", "", everyone))(t)); n != 0 {
		t.Errorf("attachments of data = %d", n)
	}
	volumes := must(s.Volumes.All(t.Context(), everyone))(t)
	if diff := cmp.Diff([]api.Volume{must(s.Volumes.Get(t.Context(), data, everyone))(t), must(s.Volumes.Get(t.Context(), root, everyone))(t)}, volumes); diff != "" {
		t.Errorf("volumes (-one by one +list):\n%s", diff)
	}
	if i := must(s.Instances.All(t.Context(), everyone))(t); len(i) != 1 || i[0].Name != "web" {
		t.Errorf("instances = %+v", i)
	}
	counts := must(s.Counts(t.Context()))(t)
	want := Counts{Instances: 1, Volumes: 2, Attachments: map[api.AttachmentState]int{"attached": 1}, Hosts: map[string]int{api.HostUp: 2}}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestTypesAreMadeChangedAndRemoved(t *testing.T) {
	s := newSite(t)
	must(s.Types.Create(t.Context(), nobody, api.VolumeTypeCreate{Name: "gold", Multiattach: true, Pools: []string{"nfs", "fast"}}))(t)
	no, pools := false, []string{}
	got := must(s.Types.Update(t.Context(), nobody, "gold", api.VolumeTypeUpdate{Multiattach: &no, Pools: &pools}))(t)
	want := api.VolumeType{Name: "gold", Pools: []string{}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(api.VolumeType{}, "ID", "CreatedAt")); diff != "" {
		t.Errorf("type (-want +got):\n%s", diff)
	}
	must(s.Types.Delete(t.Context(), nobody, "gold"))(t)
	if types := must(s.Types.All(t.Context()))(t); len(types) != 1 || types[0].Name != DefaultType {
		t.Errorf("types = %+v", types)
	}
}

func TestHostIsSuspectWhenItIsSilentAndNothingMore(t *testing.T) {
	s := newSite(t)
	s.now = func() time.Time { return time.Now().Add(time.Minute) }
	if h := must(s.Hosts.Get(t.Context(), "a"))(t); h.Status != api.HostSuspect || h.Epoch != 1 {
		t.Errorf("host = %+v", h)
	}
	if v := must(s.Volumes.Get(t.Context(), root, everyone))(t); len(v.Attachments) != 1 {
		t.Errorf("a silent host lost its attachment: %+v", v)
	}
}

// All hosts together report at one rate, so each may be silent for longer on a larger site.
func TestTheMoreHostsThereAreTheMoreRarelyEachReports(t *testing.T) {
	for hosts, want := range map[int]struct{ every, suspect time.Duration }{
		2:       {5 * time.Second, 30 * time.Second},
		250:     {5 * time.Second, 30 * time.Second},
		1000:    {20 * time.Second, 45 * time.Second},
		10_000:  {200 * time.Second, 225 * time.Second},
		100_000: {5 * time.Minute, 325 * time.Second},
	} {
		s := newSite(t)
		for n := s.hosts.Len(); n < hosts; n++ {
			s.hosts.Put(hostcache.Row{ID: fmt.Sprint("more", n)}, "")
		}
		answer := must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: hostA, Name: "a", Epoch: 1}))(t)
		if got := time.Duration(answer.ReportEverySeconds) * time.Second; got != want.every {
			t.Errorf("%d hosts: each reports every %v, want %v", hosts, got, want.every)
		}
		seen := time.Now()
		for silent, status := range map[time.Duration]string{want.suspect - 3*time.Second: api.HostUp, want.suspect + 3*time.Second: api.HostSuspect} {
			s.now = func() time.Time { return seen.Add(silent) }
			if h := must(s.Hosts.Get(t.Context(), "a"))(t); h.Status != status {
				t.Errorf("%d hosts, one silent for %v: it is %s, want %s", hosts, silent, h.Status, status)
			}
		}
	}
}

func TestReportThatSaysNothingNewIsNotWritten(t *testing.T) {
	commits := 0
	path := filepath.Join(t.TempDir(), "registry.db")
	s, err := Open(t.Context(), path, Options{OnCommit: func(int, time.Duration) { commits++ }})
	if err != nil {
		t.Fatal(err)
	}
	report := api.HostReport{ID: hostA, Name: "a", Pools: []api.Pool{{Name: "fast", FreeBytes: 1}}}
	must(s.Reports.Receive(t.Context(), nobody, report))(t)
	report.Pools = []api.Pool{{Name: "fast", FreeBytes: 2}}
	seen := must(s.Reports.Receive(t.Context(), nobody, report))(t).LastSeenAt
	if commits != 1 {
		t.Errorf("commits = %d, want 1", commits)
	}
	report.Pools = nil
	must(s.Reports.Receive(t.Context(), nobody, report))(t)
	if p := must(s.Pools.Get(t.Context(), "fast", ""))(t); p.FreeBytes != 2 {
		t.Errorf("free bytes = %d, want what was reported last", p.FreeBytes)
	}
	if err := errors.Join(s.Housekeep(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}

	s = openStore(t, path)
	if h := must(s.Hosts.Get(t.Context(), "a"))(t); h.LastSeenAt.Before(*seen) {
		t.Errorf("last seen = %v, want %v after a restart", h.LastSeenAt, seen)
	}
	if p := must(s.Pools.Get(t.Context(), "fast", ""))(t); p.FreeBytes != 2 {
		t.Errorf("free bytes = %d after a restart", p.FreeBytes)
	}
}

func TestReportUpdatesTheStatesOfItsOwnInstances(t *testing.T) {
	s := newSite(t)
	report := func(host, name string) {
		must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: host, Name: name, Instances: []api.InstanceReport{{ID: web, State: api.InstanceStopped}}}))(t)
	}
	report(hostB, "b")
	if i := must(s.Instances.Get(t.Context(), web, everyone))(t); i.State != api.InstanceRunning {
		t.Errorf("another host's report made it %s", i.State)
	}
	report(hostA, "a")
	if i := must(s.Instances.Get(t.Context(), web, everyone))(t); i.State != api.InstanceStopped {
		t.Errorf("state = %s", i.State)
	}
}
