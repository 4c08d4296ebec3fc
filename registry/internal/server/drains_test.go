// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

func TestADrainSaysWhichVolumeElsewhereReadsABaseImageInThePool(t *testing.T) {
	s := newSite(t)
	id := s.fill(t)
	clone := storetest.At("/slow/clone")
	clone.Format, clone.Backing = api.FormatQcow2, api.NewBacking([]api.BaseImage{{Path: "/fast/template", Format: api.FormatRaw}})
	expect.Value(s.store.Volumes.Register(t.Context(), store.Call{}, api.VolumeRegister{ID: newID, Name: "clone", Status: api.VolumeAvailable, Host: "a", Location: clone}))(t)
	var (
		one api.Drain
		all []api.Drain
	)
	decode(t, s.ok(t, "GET", "/v1/drains/"+id, ""), &one)
	decode(t, s.ok(t, "GET", "/v1/drains", ""), &all)
	for from, d := range map[string]api.Drain{"show": one, "list": all[0]} {
		i := slices.IndexFunc(d.Volumes, func(v api.DrainVolume) bool { return v.VolumeName == "clone" })
		if i < 0 || !d.Volumes[i].ReadsBase() {
			t.Errorf("%s: volumes %+v, want the clone", from, d.Volumes)
		}
	}
}
