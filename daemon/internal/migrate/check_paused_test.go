// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// A move with all guests paused has the refusals of a plain move of the same volume. Its disk is
// <shareable/>.
func TestAMoveWithAllGuestsPausedIsRefusedForWhatAPlainMoveIs(t *testing.T) {
	const beside = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e00ff"
	another := func(t *testing.T, w *migratetest.World) {
		t.Helper()
		must(t, w.Define(hv.Domain{ID: beside, Name: "foreign", Config: []hv.Disk{{
			Target: "vdb", Bus: "virtio", Device: "disk", Terminated: true, Shareable: true,
			Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: srcPath}},
		}}}))
	}
	with := func(change func(*hv.Domain)) func(*testing.T, *migratetest.World) {
		return func(t *testing.T, w *migratetest.World) {
			t.Helper()
			w.Redefine(t, change)
		}
	}
	for name, c := range map[string]struct {
		world  func(*testing.T, *migratetest.World)
		beside []string
		code   api.Code
		says   string
	}{
		"as it may be":                             {with(func(d *hv.Domain) { d.Config[0].Shareable = true }), nil, "", ""},
		"another guest that is paused too":         {another, []string{beside}, "", ""},
		"a domain that the registry does not know": {another, nil, api.CodeVolumeInUse, "instance foreign"},
		"snapshots":                                {with(func(d *hv.Domain) { d.Snapshots = 1 }), nil, api.CodeUnsupportedDisk, "snapshot"},
		"checkpoints":                              {with(func(d *hv.Domain) { d.Checkpoints = 1 }), nil, api.CodeUnsupportedDisk, "checkpoint"},
		"LUKS":                                     {with(func(d *hv.Domain) { d.Config[0].Encrypted = true }), nil, api.CodeUnsupportedDisk, "encrypted"},
		"a transient disk":                         {with(func(d *hv.Domain) { d.Config[0].Transient = true }), nil, api.CodeUnsupportedDisk, "transient"},
		"a slice":                                  {with(func(d *hv.Domain) { d.Config[0].Slices = true }), nil, api.CodeUnsupportedDisk, "slice"},
		"another image": {func(t *testing.T, w *migratetest.World) {
			t.Helper()
			must(t, w.CreateImage("/old/other.raw", hvtest.Raw, testSize))
			must(t, w.SetConfigChain(t.Context(), testInstance, "vda", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/old/other.raw"}}))
		}, nil, api.CodeChainChanged, "which"},
		"a managed save image": {func(t *testing.T, w *migratetest.World) {
			t.Helper()
			must(t, w.Start(testInstance))
			must(t, w.Save(testInstance))
		}, nil, api.CodeStateForbidden, "managedsave-remove"},
		"a source that was made smaller": {func(_ *testing.T, w *migratetest.World) { w.Registry.Vol.Location.SizeBytes += 512 }, nil, api.CodeSizeMismatch, "made smaller"},
		"a source that has grown since the move began": {func(_ *testing.T, w *migratetest.World) {
			w.Registry.Vol.MigrationID = "m"
			w.Registry.Vol.Location.SizeBytes -= 512
		}, nil, api.CodeMigrationActive, "grow"},
		"libvirt away": {func(_ *testing.T, w *migratetest.World) { w.Disconnect() }, nil, api.CodeHypervisorUnavailable, "nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
				c.world(t, d.world)
				vol := d.world.Registry.Vol
				err := d.manager().Parts.CheckPaused(t.Context(), vol, vol.Attachments[0], append(c.beside, testInstance))
				if api.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("error = %v, want %q %s", err, c.code, c.says)
				}
			})
		})
	}
}
