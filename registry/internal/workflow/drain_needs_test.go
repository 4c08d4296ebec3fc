// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

var overTemplate = api.NewBacking([]api.BaseImage{{Path: "/fast/template", Format: api.FormatRaw}})

// cloneAt returns the location of a linked clone over an image in pool fast.
func cloneAt(path string) api.Location {
	l := at(path)
	l.Format, l.Backing = api.FormatQcow2, overTemplate
	return l
}

func addClone(t *testing.T, s *Store, name, path string) {
	t.Helper()
	must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{
		ID: addedID[name], Name: name, Status: api.VolumeAvailable, Host: "b", Location: cloneAt(path),
	}))(t)
}

// migrateAs moves volume "more" of host b, as that host would.
func migrateAs(t *testing.T, s *Store, n, generation int, dst api.Location) {
	t.Helper()
	in := dataMigration()
	in.ID, in.VolumeID, in.Host, in.Generation, in.Dst = id(migrationKind, n), addedID["more"], hostB, int64(generation), dst
	m := must(s.Migrations.Register(t.Context(), nobody, in))(t)
	for _, to := range []api.MigrationTransition{step(api.MigrationCompleting, api.MigrationStarting), step(api.MigrationCompleted, api.MigrationCompleting)} {
		to.Host = hostB
		must(s.Migrations.Transition(t.Context(), nobody, m.ID, to))(t)
	}
}

// shown returns a drain as in a view.
func shown(t *testing.T, s *Store, drain string) api.Drain {
	t.Helper()
	one := []api.Drain{must(s.Drains.Get(t.Context(), drain))(t)}
	if err := s.Drains.AddNeeds(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	return one[0]
}

// wantReaders requires which volumes of a drain are listed for a base image in its pool.
func wantReaders(t *testing.T, d api.Drain, want ...string) {
	t.Helper()
	var got []string
	for i := range d.Volumes {
		v := &d.Volumes[i]
		if !v.ReadsBase() {
			continue
		}
		got = append(got, v.VolumeName)
		if v.State != api.DrainVolumeSkipped || v.Host != "b" || v.Error.Code != api.CodeVolumeInUse || v.Error.Details[api.DetailBaseImage] != "/fast/template" {
			t.Errorf("reader = %+v", v)
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("base images of pool %s are read by %v, want %v", d.Pool, got, want)
	}
}

func TestADrainNamesVolumesElsewhereThatReadABaseImageInThePool(t *testing.T) {
	s, d := drainSite(t)
	wantReaders(t, shown(t, s, d.ID))
	addClone(t, s, "late", "/slow/late")
	got := shown(t, s, d.ID)
	wantReaders(t, got, "late")
	if got.BytesTotal != 3*size {
		t.Errorf("total = %d, want that of the pool's three", got.BytesTotal)
	}
	// The drain does not move the volume, and ends.
	for _, v := range d.Volumes {
		mustSet(t, s, d.ID, v.VolumeID, api.DrainVolumeMoving, api.DrainVolumeMoved)
	}
	for _, v := range must(s.Drains.Get(t.Context(), d.ID))(t).Volumes {
		if v.VolumeName == "late" {
			t.Errorf("the drain itself has the volume: %+v", v)
		}
	}
	// Only the last drain of the pool lists it.
	must(s.Drains.SetState(t.Context(), nobody, d.ID, api.DrainStopped))(t)
	later := must(s.Drains.Create(t.Context(), nobody, "fast", toNFS))(t)
	slow := must(s.Drains.Create(t.Context(), nobody, "slow", toNFS))(t)
	wantReaders(t, shown(t, s, d.ID))
	wantReaders(t, shown(t, s, later.ID), "late")
	wantReaders(t, shown(t, s, slow.ID))
}

func TestAVolumeThatLeftAPoolWithoutItsBaseImageIsNotMoved(t *testing.T) {
	s := newSite(t)
	addClone(t, s, "more", "/fast/more")
	d := must(s.Drains.Create(t.Context(), nobody, "fast", toNFS))(t)
	wantReaders(t, shown(t, s, d.ID)) // the drain moves it, and copies the base image
	migrateAs(t, s, 3, 1, cloneAt("/slow/more"))
	if err := s.Drains.RefreshVolumes(t.Context(), nobody, d.ID); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, s, d.ID)["more"]; got != api.DrainVolumeMoved {
		t.Errorf("it is %s, want it out of the pool", got)
	}
	wantReaders(t, shown(t, s, d.ID), "more")
	migrateAs(t, s, 4, 2, at("/slow/alone"))
	wantReaders(t, shown(t, s, d.ID))
}

// reported makes host b report its pools with these uses of pool fast.
func reported(t *testing.T, s *Store, uses ...api.PoolUse) {
	t.Helper()
	pools := clusterPools()
	for i := range pools {
		if pools[i].Name == "fast" {
			pools[i].Uses = uses
		}
	}
	must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: hostB, Name: "b", BootID: "first", Epoch: 1, Pools: pools}))(t)
}

func TestADrainNamesTheFilesInThePoolThatDomainsNeed(t *testing.T) {
	s, d := drainSite(t)
	if got := shown(t, s, d.ID).Uses; len(got) != 0 {
		t.Fatalf("uses before any = %+v", got)
	}
	iso := api.PoolUse{Domain: "other", What: "cdrom sda", Path: "/fast/a.iso"}
	reported(t, s, iso)
	iso.Host = "b"
	if got := shown(t, s, d.ID).Uses; !slices.Equal(got, []api.PoolUse{iso}) {
		t.Errorf("uses = %+v, want %+v", got, iso)
	}
	reported(t, s)
	if got := shown(t, s, d.ID).Uses; len(got) != 0 {
		t.Errorf("uses after the last one ended = %+v", got)
	}
}

func TestADrainSaysThatTheUsesOfASilentHostAreNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := drainSite(t)
		<-time.After(time.Minute)
		uses := shown(t, s, d.ID).Uses
		if !slices.ContainsFunc(uses, func(u api.PoolUse) bool { return u.Host == "b" && u.Unknown != "" }) {
			t.Errorf("uses = %+v, want those of host b unknown", uses)
		}
	})
}

func TestADrainNamesVolumesBelowThePoolThatAreNotInIt(t *testing.T) {
	s, d := drainSite(t)
	below := func(name string) bool {
		return slices.ContainsFunc(shown(t, s, d.ID).Volumes, func(v api.DrainVolume) bool {
			return v.VolumeName == name && v.State == api.DrainVolumeSkipped && v.Outside() && !v.ReadsBase() &&
				v.Error.Code == api.CodeVolumeInUse && v.Error.Details[api.DetailImageBelow] == "/fast/sub/late"
		})
	}
	must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{
		ID: addedID["late"], Name: "late", Status: api.VolumeAvailable, Host: "b",
		Location: api.Location{Path: "/fast/sub/late", Format: api.FormatRaw, SizeBytes: size},
	}))(t)
	if !below("late") {
		t.Errorf("a volume in a directory of the pool is not named: %+v", shown(t, s, d.ID).Volumes)
	}
	// A pool defined on that directory gets the volume, which is still below the first pool.
	pools := append(clusterPools(), api.Pool{Name: "sub", Type: "dir", Path: "/fast/sub", Active: true})
	must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: hostB, Name: "b", BootID: "first", Epoch: 1, Pools: pools}))(t)
	if got := must(s.Volumes.Get(t.Context(), "late", store.Viewer{}))(t).Location.Pool; got != "sub" {
		t.Fatalf("the volume is in pool %q, want sub", got)
	}
	if !below("late") {
		t.Errorf("a volume of a pool below the pool is not named: %+v", shown(t, s, d.ID).Volumes)
	}
}

// libvirt accepts a pool of files and a pool of a filesystem at one path.
func TestADrainNamesTheVolumesOfAnotherPoolAtItsPath(t *testing.T) {
	s := newSite(t)
	pools := append(clusterPools(), api.Pool{Name: "twin", Type: "netfs", Path: "/fast/", Active: true})
	must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: hostB, Name: "b", BootID: "first", Epoch: 1, Pools: pools}))(t)
	there := at("/fast/twins")
	there.Pool = "twin"
	must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{ID: addedID["more"], Name: "more", Status: api.VolumeAvailable, Host: "b", Location: there}))(t)
	d := must(s.Drains.Create(t.Context(), nobody, "fast", toNFS))(t)
	if !slices.ContainsFunc(shown(t, s, d.ID).Volumes, func(v api.DrainVolume) bool { return v.VolumeName == "more" && v.Outside() }) {
		t.Errorf("volumes = %+v, want more below the pool", shown(t, s, d.ID).Volumes)
	}
}

func TestADrainNamesTheFilesOfShelvedInstances(t *testing.T) {
	s, d := drainSite(t)
	in := toShelf()
	in.Definition.Domain = `<domain><devices>
		<disk device='cdrom'><source file='/fast/a.iso'/><target dev='sda'/></disk><disk><source file='/fast/web'/><target dev='vda'/></disk></devices></domain>`
	movedTo(web, in)(t, s)
	want := []api.PoolUse{{Domain: "web (shelved)", What: "cdrom sda", Path: "/fast/a.iso"}}
	if got := shown(t, s, d.ID).Uses; !slices.Equal(got, want) {
		t.Errorf("uses = %+v, want %+v", got, want)
	}
}
