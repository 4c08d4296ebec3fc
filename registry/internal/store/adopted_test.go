// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// volume delete warns about data that is older than the volume. After a move the copy is that data.
func TestAVolumeStaysAdoptedWhenItMoves(t *testing.T) {
	s := newSite(t)
	made := storetest.DataRegister()
	made.ID, made.Name, made.Status, made.Location = id(volumeKind, 9), "made", api.VolumeCreating, at("/fast/made")
	must(s.Volumes.Register(t.Context(), nobody, made))(t)
	for ref, want := range map[string]bool{"root": true, "data": true, "made": false} {
		if v := must(s.Volumes.Get(t.Context(), ref, everyone))(t); v.Adopted != want {
			t.Errorf("volume %s is adopted: %t", ref, v.Adopted)
		}
	}
	moving(dataMigration())(t, s)
	m := dataMigration().ID
	must(s.Migrations.Transition(t.Context(), nobody, m, step(api.MigrationCompleting, api.MigrationStarting)))(t)
	must(s.Migrations.Transition(t.Context(), nobody, m, step(api.MigrationCompleted, api.MigrationCompleting)))(t)
	if v := must(s.Volumes.Get(t.Context(), "data", everyone))(t); !v.Adopted || v.Location.Path == storetest.DataRegister().Location.Path {
		t.Errorf("volume data has moved to %s and is adopted: %t", v.Location.Path, v.Adopted)
	}
}
