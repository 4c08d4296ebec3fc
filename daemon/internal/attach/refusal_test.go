// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
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
		"no instance":          {ask: api.VolumeAttach{}, want: api.CodeInvalidArgument},
		"unknown mode":         {ask: api.VolumeAttach{Instance: "web", Mode: "wo"}, want: api.CodeInvalidArgument},
		"unknown device":       {ask: api.VolumeAttach{Instance: "web", Device: "../x"}, want: api.CodeInvalidArgument},
		"unknown instance":     {ask: api.VolumeAttach{Instance: "none"}, want: api.CodeNotFound},
		"another host":         {ask: api.VolumeAttach{Instance: "far"}, want: api.CodeNotYourHost},
		"device in the domain": {ask: api.VolumeAttach{Instance: "web", Device: "vda"}, want: api.CodeRootAttachForbidden},
		"SCSI without SCSI":    {ask: api.VolumeAttach{Instance: "web", Device: "sdb"}, want: api.CodeUnsupportedDisk},
		"migration":            {change: func(_ *testing.T, w *world) { w.registry.vol.MigrationID = "m" }, want: api.CodeMigrationActive},
		"migration of another disk of a confined guest": {change: func(_ *testing.T, w *world) {
			w.Confine("/etc/apparmor.d/libvirt/libvirt-x.files")
			w.migrations.open = []api.Migration{{ID: "m", VolumeID: otherAtt, InstanceID: web, Method: api.MethodOverlay, Src: api.Location{Path: "/old/root.raw"}}}
		}, want: api.CodeInstanceBusy},
		"being deleted":                  {change: func(_ *testing.T, w *world) { w.registry.vol.Status = api.VolumeDeleting }, want: api.CodeVolumeNotAvailable},
		"at another instance":            {change: func(t *testing.T, w *world) { w.attached(t, otherAtt, db) }, want: api.CodeVolumeInUse},
		"at this instance":               {change: func(t *testing.T, w *world) { w.attached(t, testAtt, web) }, want: api.CodeConflict},
		"no image":                       {change: func(t *testing.T, w *world) { must(t, w.Remove(volPath)) }, want: api.CodeNotFound},
		"another size":                   {change: func(_ *testing.T, w *world) { w.registry.vol.Location.SizeBytes++ }, want: api.CodeSizeMismatch},
		"another device":                 {change: func(_ *testing.T, w *world) { w.registry.vol.Location.Identity = "naa.6001405ffff" }, want: api.CodeChainChanged},
		"the journal has it elsewhere":   {change: func(_ *testing.T, w *world) { w.migrations.unrecorded = api.Errorf(api.CodeChainChanged, "two places") }, want: api.CodeChainChanged},
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
		"migration of another disk of a confined guest": {state: hv.StateRunning, change: func(_ *testing.T, w *world) {
			w.Confine("/etc/apparmor.d/libvirt/libvirt-x.files")
			w.migrations.open = []api.Migration{{ID: "m", VolumeID: otherAtt, InstanceID: web, Method: api.MethodOverlay, Src: api.Location{Path: "/old/root.raw"}}}
		}, want: api.CodeInstanceBusy},
		"migration by the registry": {state: hv.StateRunning, change: func(_ *testing.T, w *world) { w.registry.vol.MigrationID = "m" }, want: api.CodeMigrationActive},
		"saved":                     {state: hv.StateRunning, change: func(t *testing.T, w *world) { must(t, w.Save(web)) }, want: api.CodeStateForbidden},
		"moved to another host":     {state: hv.StateRunning, change: func(t *testing.T, w *world) { must(t, w.MoveAway(web)) }, want: api.CodeStateForbidden},
		"another chain": {state: hv.StateStopped, change: func(t *testing.T, w *world) {
			must(t, w.CreateOverlay("/overlays/x.qcow2", hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: volPath}, testSize))
			must(t, w.SetConfigChain(t.Context(), web, "vdb", []hv.Image{
				{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: "/overlays/x.qcow2"}, {Type: hv.SourceFile, Format: hvtest.Raw, Path: volPath},
			}))
		}, want: api.CodeChainChanged},
		"on another image by its definition": {state: hv.StateStopped, change: func(t *testing.T, w *world) { w.putOn(t, hv.Config, oldPath) }, want: api.CodeChainChanged},
		"on another image in the running guest and its definition": {state: hv.StateRunning, change: func(t *testing.T, w *world) {
			w.putOn(t, hv.Config, oldPath)
			w.putOn(t, hv.Live, oldPath)
		}, want: api.CodeChainChanged},
		"on another image in the running guest alone": {state: hv.StateRunning, change: func(t *testing.T, w *world) { w.putOn(t, hv.Live, oldPath) }, want: api.CodeChainChanged},
		"the journal has it elsewhere, and it is off": {state: hv.StateStopped, change: func(_ *testing.T, w *world) {
			w.migrations.unrecorded = api.Errorf(api.CodeChainChanged, "two places")
		}, want: api.CodeChainChanged},
		"the journal has it elsewhere, in the running guest": {state: hv.StateRunning, change: func(_ *testing.T, w *world) {
			w.migrations.unrecorded = api.Errorf(api.CodeChainChanged, "two places")
		}, want: api.CodeChainChanged},
		"encrypted since, when it is off": {state: hv.StateStopped, change: func(t *testing.T, w *world) {
			w.editDisk(t, hv.Config, func(d *hv.Disk) { d.Uncarried = "<encryption> in its <source>" })
		}, want: api.CodeUnsupportedDisk},
		"encrypted since, in the running guest": {state: hv.StateRunning, change: func(t *testing.T, w *world) {
			w.editDisk(t, hv.Live, func(d *hv.Disk) { d.Uncarried = "<encryption> in its <source>" })
		}, want: api.CodeUnsupportedDisk},
		"a LUKS container": {state: hv.StateStopped, change: func(t *testing.T, w *world) {
			w.registry.vol.Location.LUKSSecret = web
			w.editDisk(t, hv.Config, func(d *hv.Disk) { d.Chain[0].LUKSSecret = web })
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

func TestARefusalForAGuestThatIsAsleepSaysSo(t *testing.T) {
	asleep := func(err error, code api.Code, command string) {
		t.Helper()
		wantCode(t, err, code)
		if !strings.Contains(err.Error(), "asleep") || !strings.Contains(err.Error(), command) {
			t.Errorf("it does not say that the guest is asleep, and %q: %v", command, err)
		}
	}
	inBubble(t, func(t *testing.T, d *daemon) {
		must(t, d.world.StandStill(web, hv.PauseAsleep))
		asleep(failed(d.attach("a", api.VolumeAttach{Instance: "web"})), api.CodeInstanceBusy, "virsh dompmwakeup")
	}, hv.StateRunning)
	withRoot(t, false, func(t *testing.T, d *daemon) {
		d.world.runs(t)
		must(t, d.world.StandStill(web, hv.PauseAsleep))
		asleep(failed(d.attach("a", attachAsRoot)), api.CodeRootAttachForbidden, "volferryctl instance stop --force")
	})
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
		d.world.registry.onVolume = func(v *api.Volume) { v.Attachments = nil } // as if the slot had another volume
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

// TestACloneOverTheImageOfAnotherVolumeIsNotAttached: another host may have written its header.
func TestACloneOverTheImageOfAnotherVolumeIsNotAttached(t *testing.T) {
	const base = "/run/base.raw"
	for what, c := range map[string]struct {
		volumes    []api.Volume
		migrations []api.Migration
		words      string
	}{
		"nobody's":               {},
		"another clone's":        {volumes: []api.Volume{{ID: otherAtt, Name: "other", Host: hostName, Location: api.Location{Path: "/run/clone", Backing: api.NewBacking([]api.BaseImage{{Path: base, Format: api.FormatRaw}})}}}},
		"a volume":               {volumes: []api.Volume{{ID: otherAtt, Name: "other", Host: hostName, Location: api.Location{Path: base}}}, words: "its base image " + base + " is volume other already"},
		"a move's destination":   {migrations: []api.Migration{{ID: "m1", VolumeName: "db", Host: hostName, Dst: api.Location{Path: base}}}, words: "is the destination of migration m1"},
		"below another of these": {volumes: []api.Volume{{ID: otherAtt, Name: "other", Host: hostName, Location: api.Location{Path: "/run/deep.raw"}}}, words: "its base image /run/deep.raw is volume other"},
	} {
		w := newWorld(t)
		w.registry.vol.Location.Format = api.FormatQcow2
		w.registry.vol.Location.Backing = api.NewBacking([]api.BaseImage{{Path: base, Format: api.FormatQcow2}, {Path: "/run/deep.raw", Format: api.FormatRaw}})
		w.site.volumes, w.site.migrations = append(c.volumes, w.registry.vol), c.migrations
		in := w.input(testAtt, web)
		err := w.newManager(optest.NewRunner(w.journal)).env.checkOwn(t.Context(), &in)
		if (err == nil) != (c.words == "") || err != nil && (api.CodeOf(err) != api.CodeVolumeInUse || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%s: %v, want %q", what, err, c.words)
		}
	}
}

// oldPath is the volume's path before its move.
const oldPath = "/old/vol.raw"

// putOn gives the volume's disk of instance web another image, as an old definition does.
func (w *world) putOn(t *testing.T, where hv.Where, path string) {
	t.Helper()
	if !w.Exists(path) {
		must(t, w.CreateImage(path, hvtest.Raw, testSize))
	}
	w.editDisk(t, where, func(d *hv.Disk) { d.Chain = []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}} })
}

func TestAnAttachmentIsNotDeletedWhileItsGuestHasAnotherImageOfIt(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		w.putOn(t, hv.Config, oldPath)
		w.putOn(t, hv.Live, oldPath)
		g, _ := d.Now()
		_, err := g.Delete(t.Context(), "displaced", testAtt, true)
		wantCode(t, err, api.CodeChainChanged)
		if got := w.registry.state(); got != api.AttachmentAttached {
			t.Errorf("the attachment is %q", got)
		}
	}, hv.StateRunning)
}

// The old definition has it at another device; its serial identifies it.
func TestADiskThatIsTheVolumesByItsSerialIsNotDetachedUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		must(t, w.CreateImage(oldPath, hvtest.Raw, testSize))
		must(t, w.Fake.DetachDisk(t.Context(), web, hv.Config, "vdb"))
		must(t, w.Fake.AttachDisk(t.Context(), web, hv.Config, hv.DiskSpec{Target: "vdx", Bus: "virtio", Serial: testVolume, Image: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: oldPath}}))
		wantCode(t, failed(d.detach("d", web)), api.CodeChainChanged)
	}, hv.StateStopped)
}

// The old definition is restored in the middle of a detach.
func TestADetachIsNotDoneWhereTheDiskComesBackOnAnotherImage(t *testing.T) {
	var calls []string
	inBubble(t, func(t *testing.T, d *daemon) {
		d.world.attached(t, testAtt, web)
		d.world.Moments.Arrange(math.MaxInt, hosttest.Happening{})
		must(t, failed(d.detach("d", web)))
		calls = d.world.Moments.Calls()
	}, hv.StateStopped)
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		dom, err := w.Fake.Domain(t.Context(), web)
		must(t, err)
		old := *dom.ConfigDisk("vdb")
		must(t, w.CreateImage(oldPath, hvtest.Raw, testSize))
		old.Chain = []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: oldPath}}
		def, err := json.Marshal(old)
		must(t, err)
		w.Moments.Arrange(slices.Index(calls, "DetachDisk")+1, hosttest.Happening{After: true, Do: func() {
			must(t, w.Fake.AttachDisk(t.Context(), web, hv.Config, hv.DiskSpec{Target: "vdb", Definition: string(def)}))
		}})
		if err := failed(d.detach("d", web)); err == nil {
			t.Error("the detach is done")
		}
		if !w.Moments.Happened() || w.registry.state() == "" {
			t.Error("the volume was given back")
		}
	}, hv.StateStopped)
}

// The attach added no disk, so the disk at its device now is another one.
func TestWhatAnAttachLeftIsReleasedThoughItsDeviceIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		w.putOn(t, hv.Config, "/other.raw")
		w.editDisk(t, hv.Config, func(d *hv.Disk) { d.Serial = "" })
		in := w.input(testAtt, web)
		w.registry.rows[testAtt] = in.attachment(api.AttachmentReserved)
		g, _ := d.Now()
		_, err := g.Delete(t.Context(), "d", testAtt, true)
		must(t, err)
		if got := w.registry.state(); got != "" {
			t.Errorf("the attachment is %q", got)
		}
	}, hv.StateStopped)
}

// After virsh undefine, and virsh define of a definition without a UUID.
func TestADomainThatHasAnotherUUIDKeepsItsVolumes(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		row := w.registry.rows[testAtt]
		row.InstanceName = "web"
		w.registry.rows[testAtt] = row
		dom, err := w.Fake.Domain(t.Context(), web)
		must(t, err)
		must(t, w.Fake.Undefine(web))
		must(t, w.Define(hv.Domain{ID: testOp, Name: "web", Config: dom.Config}))
		wantCode(t, failed(d.detach("d", web)), api.CodeChainChanged)
		g, _ := d.Now()
		_, err = g.Delete(t.Context(), "f", testAtt, true)
		wantCode(t, err, api.CodeChainChanged)
		if got := w.registry.state(); got != api.AttachmentAttached {
			t.Errorf("the attachment is %q", got)
		}
	}, hv.StateStopped)
}
