// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/internal/api"
)

func TestNothingIsAdoptedOrResizedThroughALinkInAPool(t *testing.T) {
	for name, do := range map[string]func(*Manager, api.Volume) error{
		"adopted by its name": func(m *Manager, v api.Volume) error {
			_, err := m.Adopt(t.Context(), testOp, api.VolumeAdopt{Name: "new", Pool: v.Location.Pool, VolumeName: v.Location.Name, Format: api.FormatRaw})
			return err
		},
		"adopted by its path": func(m *Manager, v api.Volume) error {
			_, err := m.Adopt(t.Context(), testOp, api.VolumeAdopt{Name: "new", Path: v.Location.Path, Format: api.FormatRaw})
			return err
		},
		"resized": func(m *Manager, v api.Volume) error {
			_, err := m.Resize(t.Context(), testOp, v.ID, api.VolumeResize{SizeBytes: 2 * testSize})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			planted := hosttest.PlantLink(t, w.Fake, testSize)
			v := api.Volume{Location: planted.Location}
			if name == "resized" {
				v = w.addVolume("db", planted.Location)
			}
			planted.Refused(t, do(w.start(t), v))
			if is := w.registry.volumes[v.ID].SizeBytes; is != v.Location.SizeBytes && v.ID != "" {
				t.Errorf("the registry has %d bytes", is)
			}
		})
	}
}
