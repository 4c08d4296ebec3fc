// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

var overTemplate = api.NewBacking([]api.BaseImage{{Path: "/fast/template", Format: api.FormatRaw}})

// cloneAt is the place of a linked clone over an image in pool fast.
func cloneAt(path string) api.Location {
	l := at(path)
	l.Format, l.Backing = api.FormatQcow2, overTemplate
	return l
}

func addClone(t *testing.T, s *Store, name, path string) {
	t.Helper()
	must(s.RegisterVolume(t.Context(), nobody, api.VolumeRegister{
		ID: addedID[name], Name: name, Status: api.VolumeAvailable, Host: "b", Location: cloneAt(path),
	}))(t)
}

// migrateAs moves volume "more" of host b, as that host would.
func migrateAs(t *testing.T, s *Store, n, generation int, dst api.Location) {
	t.Helper()
	in := dataMigration()
	in.ID, in.VolumeID, in.Host, in.Generation, in.Dst = id(migrationKind, n), addedID["more"], hostB, int64(generation), dst
	m := must(s.RegisterMigration(t.Context(), nobody, in))(t)
	for _, to := range []api.MigrationTransition{step(api.MigrationCompleting, api.MigrationStarting), step(api.MigrationCompleted, api.MigrationCompleting)} {
		to.Host = hostB
		must(s.TransitionMigration(t.Context(), nobody, m.ID, to))(t)
	}
}

// shown is a drain as a view shows it.
func shown(t *testing.T, s *Store, drain string) api.Drain {
	t.Helper()
	one := []api.Drain{must(s.Drain(t.Context(), drain))(t)}
	if err := s.AddBaseReaders(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	return one[0]
}

// wantReaders checks which volumes of a drain are there for a base image in its pool.
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
	// The drain has nothing to do with it, and ends.
	for _, v := range d.Volumes {
		mustSet(t, s, d.ID, v.VolumeID, api.DrainVolumeMoving, api.DrainVolumeMoved)
	}
	for _, v := range must(s.Drain(t.Context(), d.ID))(t).Volumes {
		if v.VolumeName == "late" {
			t.Errorf("the drain itself has the volume: %+v", v)
		}
	}
	// It is the last drain of its pool that says it, and no drain of another pool.
	must(s.SetDrainState(t.Context(), nobody, d.ID, api.DrainStopped))(t)
	later := must(s.CreateDrain(t.Context(), nobody, "fast", toNFS))(t)
	slow := must(s.CreateDrain(t.Context(), nobody, "slow", toNFS))(t)
	wantReaders(t, shown(t, s, d.ID))
	wantReaders(t, shown(t, s, later.ID), "late")
	wantReaders(t, shown(t, s, slow.ID))
}

func TestAVolumeThatLeftAPoolWithoutItsBaseImageIsNotMoved(t *testing.T) {
	s := newSite(t)
	addClone(t, s, "more", "/fast/more")
	d := must(s.CreateDrain(t.Context(), nobody, "fast", toNFS))(t)
	wantReaders(t, shown(t, s, d.ID)) // the drain moves it, and copies the base image
	migrateAs(t, s, 3, 1, cloneAt("/slow/more"))
	if err := s.RefreshDrainVolumes(t.Context(), nobody, d.ID); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, s, d.ID)["more"]; got != api.DrainVolumeMoved {
		t.Errorf("it is %s, want it out of the pool", got)
	}
	wantReaders(t, shown(t, s, d.ID), "more")
	migrateAs(t, s, 4, 2, at("/slow/alone"))
	wantReaders(t, shown(t, s, d.ID))
}
