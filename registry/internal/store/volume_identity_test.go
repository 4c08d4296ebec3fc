// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestTheIdentityOfADeviceIsStoredOnceAndThenChangedByAnOperatorAlone(t *testing.T) {
	s := newCluster(t)
	at := must(s.Volumes.Get(t.Context(), data, everyone))(t).Location.Path
	identify := func(path, identity string) (api.Volume, error) {
		return s.Volumes.Identify(t.Context(), nobody, data, api.VolumeIdentify{Path: path, Identity: identity})
	}
	wantCode(t, second(identify(at, "")), api.CodeInvalidArgument, "missing")
	wantCode(t, second(identify(at, "naa.\x1b")), api.CodeInvalidArgument, "printed")
	wantCode(t, second(identify(at, strings.Repeat("a", 9000))), api.CodeInvalidArgument, "longer")
	wantCode(t, second(identify("/elsewhere", "naa.a")), api.CodeConflict, "not at /elsewhere")
	if v := must(identify(at, "naa.a"))(t); v.Location.Identity != "naa.a" {
		t.Errorf("the volume is at %+v", v.Location)
	}
	must(identify(at, "naa.a"))(t) // another look reports the same
	wantCode(t, second(identify(at, "naa.b")), api.CodeConflict, "naa.a, and not naa.b")

	set := func(identity string) (api.Volume, error) {
		return s.Volumes.Update(t.Context(), nobody, data, api.VolumeUpdate{Identity: &identity})
	}
	for _, want := range []string{"naa.b", ""} {
		if v := must(set(want))(t); v.Location.Identity != want {
			t.Errorf("the volume is at %+v, want the identity %q", v.Location, want)
		}
	}
	must(identify(at, "naa.c"))(t)
}

func TestAVolumeHasTheIdentityOfItsDestinationAfterTheMoveAndKeepsItMeanwhile(t *testing.T) {
	s := newSite(t)
	src := must(s.Volumes.Get(t.Context(), "data", everyone))(t).Location.Path
	must(s.Volumes.Identify(t.Context(), nobody, "data", api.VolumeIdentify{Path: src, Identity: "naa.src"}))(t)
	m := dataMigration()
	m.Dst.Identity = "naa.dst"
	moving(m)(t, s)
	if v := must(s.Volumes.Get(t.Context(), "data", everyone))(t); v.Location.Identity != "naa.src" {
		t.Errorf("in the move the volume is %q", v.Location.Identity)
	}
	other := "naa.other"
	_, err := s.Volumes.Update(t.Context(), nobody, "data", api.VolumeUpdate{Identity: &other})
	wantCode(t, err, api.CodeMigrationActive, "moving it")
	must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(api.MigrationCompleting, api.MigrationStarting)))(t)
	must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(api.MigrationCompleted, api.MigrationCompleting)))(t)
	if v := must(s.Volumes.Get(t.Context(), "data", everyone))(t); v.Location.Identity != "naa.dst" {
		t.Errorf("after the move the volume is %q", v.Location.Identity)
	}
}
