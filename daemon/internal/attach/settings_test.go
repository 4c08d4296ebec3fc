// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// withSettings runs a test in a world that has the volume as a disk of instance web with its
// owner's settings, in both descriptions.
func withSettings(t *testing.T, state hv.State, f func(t *testing.T, d *daemon, was hv.Disk)) {
	t.Helper()
	inBubble(t, func(t *testing.T, d *daemon) {
		d.world.attached(t, testAtt, web)
		edit := func(disk *hv.Disk) {
			disk.Cache, disk.ErrorPolicy, disk.Serial, disk.Discard, disk.CopyOnRead = "writeback", "stop", "own", "ignore", true
		}
		d.world.editDisk(t, hv.Config, edit)
		if state.Active() {
			d.world.editDisk(t, hv.Live, edit)
		}
		_, was := d.disks(t, web)
		must(t, failed(d.detach("d", web)))
		f(t, d, *was)
	}, state)
}

func TestADataVolumeComesBackAsTheDiskThatItWas(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			withSettings(t, state, func(t *testing.T, d *daemon, was hv.Disk) {
				must(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})))
				live, config := d.disks(t, web)
				if diff := cmp.Diff(&was, config); diff != "" {
					t.Errorf("the definition's disk (-before +after)\n%s", diff)
				}
				if diff := cmp.Diff(&was, live); state.Active() && diff != "" {
					t.Errorf("the running guest's disk (-before +after)\n%s", diff)
				}
			})
		})
	}
}

func TestADataVolumeComesBackAtAnotherDeviceAndAddressIfItsOwnAreTaken(t *testing.T) {
	withSettings(t, hv.StateRunning, func(t *testing.T, d *daemon, was hv.Disk) {
		must(t, d.world.CreateImage("/data/other.raw", hvtest.Raw, testSize))
		for _, where := range []hv.Where{hv.Config, hv.Live} {
			must(t, d.world.Fake.AttachDisk(t.Context(), web, where, hv.DiskSpec{
				Target: "vdb", Bus: "virtio", Image: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/data/other.raw"},
			}))
		}
		att, err := d.attach("a", api.VolumeAttach{Instance: "web"})
		must(t, err)
		got := d.configDisk(t, att.Device)
		if got == nil || got.Address == was.Address || got.Address == "" {
			t.Fatalf("device %s is %+v; the address of then is another disk's", att.Device, got)
		}
		want := was
		want.Target, want.Address = att.Device, got.Address
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("disk (-before +after)\n%s", diff)
		}
	})
}

func TestDefaultSettingsMakeANewDisk(t *testing.T) {
	withSettings(t, hv.StateStopped, func(t *testing.T, d *daemon, _ hv.Disk) {
		must(t, failed(d.attach("a", api.VolumeAttach{Instance: "web", DefaultSettings: true})))
		if _, got := d.disks(t, web); got.Cache != "none" || got.ErrorPolicy != "" || got.Serial != testVolume {
			t.Errorf("the disk is %+v", got)
		}
	})
}

func TestADiskThatWouldNotComeBackWholeIsNotAttachedAsItself(t *testing.T) {
	for name, c := range map[string]struct {
		ask  api.VolumeAttach
		edit func(*api.DetachedDisk)
		want api.Code
	}{
		"on another bus": {ask: api.VolumeAttach{Instance: "web", Device: "sda"}, want: api.CodeInvalidArgument},
		"encrypted": {ask: api.VolumeAttach{Instance: "web"}, edit: func(k *api.DetachedDisk) {
			k.Slot.Disk = `{"Target":"vdb","Bus":"virtio","Uncarried":"<encryption> in its <source>"}`
		}, want: api.CodeUnsupportedDisk},
		"transient": {ask: api.VolumeAttach{Instance: "web"}, edit: func(k *api.DetachedDisk) {
			k.Slot.Disk = `{"Target":"vdb","Bus":"virtio","Transient":true}`
		}, want: api.CodeUnsupportedDisk},
	} {
		t.Run(name, func(t *testing.T) {
			withSettings(t, hv.StateStopped, func(t *testing.T, d *daemon, _ hv.Disk) {
				w := d.world
				must(t, w.CreateImage("/data/scsi.raw", hvtest.Raw, testSize))
				must(t, w.Fake.AttachDisk(t.Context(), web, hv.Config, hv.DiskSpec{
					Target: "sdb", Bus: "scsi", Image: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/data/scsi.raw"},
				}))
				if c.edit != nil {
					kept := w.registry.detached[web]
					c.edit(&kept)
					w.registry.detached[web] = kept
				}
				wantCode(t, failed(d.attach("a", c.ask)), c.want)
			})
		})
	}
}
