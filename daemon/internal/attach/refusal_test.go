// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op/optest"
)

func TestAttachIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	ask := api.VolumeAttach{Instance: "web"}
	raw := func(path string) []hv.Image {
		return []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}}
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, w *world)
		ask    api.VolumeAttach
		want   api.Code
	}{
		"no instance":                    {ask: api.VolumeAttach{}, want: api.CodeInvalidArgument},
		"unknown mode":                   {ask: api.VolumeAttach{Instance: "web", Mode: "wo"}, want: api.CodeInvalidArgument},
		"unknown device":                 {ask: api.VolumeAttach{Instance: "web", Device: "../x"}, want: api.CodeInvalidArgument},
		"unknown instance":               {ask: api.VolumeAttach{Instance: "none"}, want: api.CodeNotFound},
		"another host":                   {ask: api.VolumeAttach{Instance: "far"}, want: api.CodeNotYourHost},
		"device in the domain":           {ask: api.VolumeAttach{Instance: "web", Device: "vda"}, want: api.CodeRootAttachForbidden},
		"SCSI without SCSI":              {ask: api.VolumeAttach{Instance: "web", Device: "sdb"}, want: api.CodeUnsupportedDisk},
		"migration":                      {change: func(_ *testing.T, w *world) { w.registry.vol.MigrationID = "m" }, want: api.CodeMigrationActive},
		"being deleted":                  {change: func(_ *testing.T, w *world) { w.registry.vol.Status = api.VolumeDeleting }, want: api.CodeVolumeNotAvailable},
		"at another instance":            {change: func(t *testing.T, w *world) { w.attached(t, otherAtt, db) }, want: api.CodeVolumeInUse},
		"at this instance":               {change: func(t *testing.T, w *world) { w.attached(t, testAtt, web) }, want: api.CodeConflict},
		"no image":                       {change: func(t *testing.T, w *world) { must(t, w.Remove(volPath)) }, want: api.CodeNotFound},
		"another size":                   {change: func(_ *testing.T, w *world) { w.registry.vol.Location.SizeBytes++ }, want: api.CodeSizeMismatch},
		"a mount":                        {change: func(_ *testing.T, w *world) { w.images.Users = map[string]string{volPath: "it is mounted"} }, want: api.CodeVolumeInUse},
		"an image that QEMU cannot open": {change: func(_ *testing.T, w *world) { w.images.Shut = volPath }, want: api.CodePermissionDenied},
		"a closed directory":             {change: func(_ *testing.T, w *world) { w.images.Closed = filepath.Dir(volPath) }, want: api.CodePermissionDenied},
		"another path of pool":           {change: func(_ *testing.T, w *world) { w.registry.vol.Location.Path = "/elsewhere/vol.raw" }, want: api.CodeConflict},
		"a place that is closed": {change: func(_ *testing.T, w *world) {
			w.registry.vol.Location.Pool, w.registry.vol.Location.Path = "", "/etc/vol.raw"
		}, want: api.CodePermissionDenied},
		"a stranger's disk": {change: func(t *testing.T, w *world) {
			must(t, w.Fake.AttachDisk(t.Context(), db, hv.Config, hv.DiskSpec{Target: "vdc", Bus: "virtio", Image: raw(volPath)[0]}))
		}, want: api.CodeVolumeInUse},
		"a stranger's disk of a multiattach volume": {change: func(t *testing.T, w *world) {
			w.registry.vol.Multiattach = true
			must(t, w.Fake.AttachDisk(t.Context(), db, hv.Config, hv.DiskSpec{Target: "vdc", Bus: "virtio", Shareable: true, Image: raw(volPath)[0]}))
		}, want: api.CodeVolumeInUse},
		"moved":     {change: func(t *testing.T, w *world) { must(t, w.MoveAway(web)) }, want: api.CodeStateForbidden},
		"saved":     {change: func(t *testing.T, w *world) { must(t, w.Save(web)) }, want: api.CodeStateForbidden},
		"transient": {change: func(t *testing.T, w *world) { must(t, w.Undefine(web)) }, want: api.CodeStateForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				if c.change != nil {
					c.change(t, d.world)
				}
				if c.ask == (api.VolumeAttach{}) && c.change != nil {
					c.ask = ask
				}
				rows := len(d.world.registry.all())
				wantCode(t, failed(d.attach("a", c.ask)), c.want)
				if len(d.world.registry.all()) != rows || len(d.world.registry.changes) != 0 {
					t.Errorf("the registry was told %v", d.world.registry.changes)
				}
			}, hv.StateRunning)
		})
	}
}

func TestDetachIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	zero := 0
	for name, c := range map[string]struct {
		state  hv.State
		change func(t *testing.T, w *world)
		want   api.Code
	}{
		"root": {state: hv.StateRunning, change: func(_ *testing.T, w *world) {
			att := w.registry.rows[testAtt]
			att.BootIndex = &zero
			w.registry.rows[testAtt] = att
		}, want: api.CodeRootDetachForbidden},
		"migration by the journal": {state: hv.StateRunning, change: func(_ *testing.T, w *world) {
			w.migrations.open = []api.Migration{{ID: "m", VolumeID: testVolume}}
		}, want: api.CodeMigrationActive},
		"migration by the registry": {state: hv.StateRunning, change: func(_ *testing.T, w *world) { w.registry.vol.MigrationID = "m" }, want: api.CodeMigrationActive},
		"saved":                     {state: hv.StateRunning, change: func(t *testing.T, w *world) { must(t, w.Save(web)) }, want: api.CodeStateForbidden},
		"moved to another host":     {state: hv.StateRunning, change: func(t *testing.T, w *world) { must(t, w.MoveAway(web)) }, want: api.CodeStateForbidden},
		"another chain": {state: hv.StateStopped, change: func(t *testing.T, w *world) {
			must(t, w.CreateOverlay("/overlays/x.qcow2", hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: volPath}, testSize))
			must(t, w.SetConfigChain(t.Context(), web, "vdb", []hv.Image{
				{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: "/overlays/x.qcow2"}, {Type: hv.SourceFile, Format: hvtest.Raw, Path: volPath},
			}))
		}, want: api.CodeChainChanged},
		"encrypted since, when it is off": {state: hv.StateStopped, change: func(t *testing.T, w *world) {
			w.editDisk(t, hv.Config, func(d *hv.Disk) { d.Uncarried = "<encryption> in its <source>" })
		}, want: api.CodeUnsupportedDisk},
		"encrypted since, in the running guest": {state: hv.StateRunning, change: func(t *testing.T, w *world) {
			w.editDisk(t, hv.Live, func(d *hv.Disk) { d.Uncarried = "<encryption> in its <source>" })
		}, want: api.CodeUnsupportedDisk},
		"at no instance": {state: hv.StateRunning, change: func(_ *testing.T, w *world) {
			delete(w.registry.rows, testAtt)
		}, want: api.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				d.world.attached(t, testAtt, web)
				c.change(t, d.world)
				_, before := d.disks(t, web)
				wantCode(t, failed(d.detach("d", web)), c.want)
				if _, after := d.disks(t, web); after == nil || !sameDisk(*before, *after) {
					t.Errorf("the definition had %+v and has %+v", before, after)
				}
				if row := d.world.registry.state(); row != "" && row != api.AttachmentAttached {
					t.Errorf("the attachment is left %s", row)
				}
			}, c.state)
		})
	}
}

func TestARefusalNamesWhatIsInTheWay(t *testing.T) {
	named := func(err error, name string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), db) || strings.Contains(err.Error(), testVolume) {
			t.Errorf("it does not speak of %s: %v", name, err)
		}
	}
	withRoot(t, false, func(t *testing.T, d *daemon) {
		d.world.attached(t, otherAtt, db)
		row := d.world.registry.rows[otherAtt]
		row.InstanceName = "the database"
		d.world.registry.rows[otherAtt] = row
		err := failed(d.attach("a", api.VolumeAttach{Instance: "web"}))
		wantCode(t, err, api.CodeVolumeInUse)
		named(err, "instance the database")
	})
	withRoot(t, true, func(t *testing.T, d *daemon) {
		d.world.registry.onVolume = func(v *api.Volume) { v.Attachments = nil } // as if the slot had another one
		err := failed(d.attach("a", attachAsRoot))
		wantCode(t, err, api.CodeConflict)
		named(err, "it has volume vol there")
	})
}

func TestAVolumeWhoseImageIsAnotherVolumeByAnotherNameIsNotAttached(t *testing.T) {
	w := newWorld(t)
	w.site.volumes = []api.Volume{w.registry.vol, {ID: otherAtt, Name: "other", Host: hostName, Location: api.Location{Path: volPath}}}
	in := w.input(testAtt, web)
	err := w.newManager(optest.NewRunner(w.journal)).env.checkLocation(t.Context(), &in)
	if api.CodeOf(err) != api.CodeVolumeInUse || !strings.Contains(err.Error(), "is volume other already") {
		t.Errorf("got %v, want volume_in_use by volume other", err)
	}
}
