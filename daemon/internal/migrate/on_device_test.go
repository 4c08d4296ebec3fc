// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// extentBytes is the granularity of volumes in the pool of devices.
const extentBytes = 3 * hvtest.BlockSize

func addDevicePool(w *migratetest.World) {
	w.AddPool(hv.PoolInfo{Name: "lvm", Type: "logical", Path: "/dev/vg", Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
	w.RoundUp("lvm", extentBytes)
}

// onDevice checks that dst is an image on a device, with all writes of its guest.
func (d *daemon) onDevice(t *testing.T, mig api.Migration) {
	t.Helper()
	if err := d.world.SettledOn(hv.Image{Type: hv.SourceBlock, Format: hvtest.Qcow2, Path: mig.Dst.Path}); err != nil {
		t.Error(err)
	}
	if at := d.world.Registry.CurrentVolume().Location; at.Path != mig.Dst.Path || at.Format != api.FormatQcow2 || at.SizeBytes != testSize || at.ImageBytes != 0 {
		t.Errorf("the registry has the volume at %+v", at)
	}
}

// The device's old content is not visible.
func TestAVolumeMovesToAnImageOnADeviceAndBack(t *testing.T) {
	for _, state := range allStates {
		for _, method := range []string{"", api.MethodMirror} {
			t.Run(string(state)+" "+method, func(t *testing.T) {
				inBubbleOn(t, migratetest.DeviceWorld, state, func(t *testing.T, d *daemon) {
					for b := range int64(testBlocks) {
						must(t, d.world.WriteBlock(migratetest.DstDevice, b, 4711))
					}
					target := d.world.To
					target.Method = method
					mig := d.until(d.migrateTo(target), api.MigrationCompleted)
					d.onDevice(t, mig)
					if last := d.world.Copier.Last; last.Key != "" && !last.DstIsZero {
						t.Error("the copier was not told that the image is empty")
					}
					back := api.MigrationTarget{ToPool: "new", ToFormat: api.FormatRaw, Method: method}
					d.moved(d.until(d.migrateTo(back), api.MigrationCompleted))
				})
			})
		}
	}
}

// The device is as large as the image may grow, rounded.
func TestAPoolOfDevicesMakesOneThatTheImageFitsOn(t *testing.T) {
	for _, state := range allStates {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				addDevicePool(d.world)
				target := api.MigrationTarget{ToPool: "lvm", ToFormat: api.FormatQcow2}
				plan, err := d.manager().Plan(t.Context(), testVolume, target)
				must(t, err)
				mig := d.begin(target)
				info, err := d.world.Info(mig.Dst.Path)
				if want := (testSize + hvtest.TableBytes + extentBytes - 1) / extentBytes * extentBytes; err != nil ||
					info.DeviceBytes != int64(want) || info.Format != hvtest.Qcow2 || *plan.NeededBytes != info.DeviceBytes {
					t.Errorf("the device is %+v (%v), want %d bytes; planned were %d", info, err, want, *plan.NeededBytes)
				}
				_, _, err = d.manager().Cancel(context.Background(), d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCancelled)
				synctest.Wait()
				if d.world.Exists(mig.Dst.Path) {
					t.Error("the device is left")
				}
				d.stayed()
				d.onDevice(t, d.until(d.migrateTo(target), api.MigrationCompleted))
			})
		})
	}
}

// dst may be anywhere.
func TestTheImageOnADeviceIsMadeAnewAfterACrash(t *testing.T) {
	for _, moment := range []string{"device", "formatted"} {
		for name, target := range map[string]api.MigrationTarget{
			"at a path":   {ToPath: migratetest.DstDevice},
			"in a pool":   {ToPool: "lvm"},
			"of a target": {ToPath: volumePath},
		} {
			t.Run(moment+" "+name, func(t *testing.T) {
				inBubbleOn(t, migratetest.DeviceWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
					addDevicePool(d.world)
					must(t, d.world.AddTarget(volumePath, migratetest.DeviceBytes))
					x := newDeath()
					d.world.Images.OnCreate = func(m string) {
						if m == moment {
							x.die()
						}
					}
					id := d.migrateTo(target)
					d.reboot(x, func() {})
					d.onDevice(t, d.until(id, api.MigrationCompleted))
				})
			})
		}
	}
}

// It was put there after the request.
func TestAnotherDeviceAtThePathOfDstIsNotWritten(t *testing.T) {
	inBubbleOn(t, migratetest.DeviceWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		var born int64
		d.world.Images.OnCreate = func(moment string) {
			if moment == "device" {
				born = d.world.Replace(t, migratetest.DstDevice)
			}
		}
		mig := d.until(d.migrate(), api.MigrationError)
		if mig.Error == nil || mig.Error.Code != api.CodeDstInUse {
			t.Errorf("it ended with %v, want dst_in_use", mig.Error)
		}
		content, err := d.world.ReadImage(migratetest.DstDevice)
		if err != nil || content[0] != 4711 || d.world.Born(t, migratetest.DstDevice) != born {
			t.Errorf("the other device was written: %v, %v", content, err)
		}
		d.stayed()
	})
}

// TestAnImageIsNotPutOnADeviceThatItMayOutgrowOrUnasked.
func TestAnImageIsNotPutOnADeviceThatItMayOutgrowOrUnasked(t *testing.T) {
	toDevice := api.MigrationTarget{ToPath: migratetest.DstDevice, ToFormat: api.FormatQcow2}
	for _, c := range []struct {
		name   string
		target api.MigrationTarget
		world  func(t *testing.T, w *migratetest.World)
		code   api.Code
		says   string
	}{
		{"a device that is too small", toDevice, func(t *testing.T, w *migratetest.World) {
			t.Helper()
			must(t, w.Remove(migratetest.DstDevice))
			must(t, w.CreateImage(migratetest.DstDevice, hvtest.Raw, migratetest.DeviceBytes-512))
		}, api.CodeSizeMismatch, "(139264 bytes)"},
		{"a target that is too small", api.MigrationTarget{ToPath: volumePath, ToFormat: api.FormatQcow2}, func(t *testing.T, w *migratetest.World) {
			t.Helper()
			must(t, w.AddTarget(volumePath, testSize))
			must(t, w.ConnectDevice(t.Context(), volumePath))
		}, api.CodeSizeMismatch, "(139264 bytes)"},
		{"a pool without room for it", api.MigrationTarget{ToPool: "lvm", ToFormat: api.FormatQcow2}, func(_ *testing.T, w *migratetest.World) {
			w.AddPool(hv.PoolInfo{Name: "lvm", Type: "logical", Path: "/dev/vg", Active: true, CapacityBytes: 1 << 40, FreeBytes: testSize})
		}, api.CodeNoSpace, "(147456 bytes)"},
		{"a file to a pool of devices, unasked", api.MigrationTarget{ToPool: "lvm"}, asFile, api.CodeInvalidArgument, "--to-format qcow2"},
		{"a file to a device, unasked", api.MigrationTarget{ToPath: migratetest.DstDevice}, asFile, api.CodeInvalidArgument, "--to-format qcow2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubbleOn(t, migratetest.DeviceWorld, hv.StateStopped, func(t *testing.T, d *daemon) {
				addDevicePool(d.world)
				c.world(t, d.world)
				_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: c.target, Composite: true})
				if api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want %s that says %q", err, c.code, c.says)
				}
				r := &hosttest.Recorder{}
				d.world.AssertClean(r)
				for _, problem := range r.Problems {
					t.Error(problem)
				}
			})
		})
	}
}

// asFile makes the volume of a DeviceWorld a qcow2 file.
func asFile(t *testing.T, w *migratetest.World) {
	t.Helper()
	const path = "/old/vol.qcow2"
	must(t, w.CreateImage(path, hvtest.Qcow2, testSize))
	must(t, w.Copy(migratetest.SrcDevice, path))
	w.Src = hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: path}
	w.Redefine(t, func(d *hv.Domain) { d.Config[0].Chain = []hv.Image{w.Src} })
	v := &w.Registry.Vol
	v.Location.Path = path
	v.Attachments[0].Location = v.Location
}

// The move ends as soon as the target is connected.
func TestAMoveToATargetThatIsTooSmallForTheImageEndsInVain(t *testing.T) {
	inBubbleOn(t, migratetest.DeviceWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		must(t, d.world.AddTarget(volumePath, testSize))
		mig := d.until(d.migrateTo(api.MigrationTarget{ToPath: volumePath}), api.MigrationError)
		if mig.Error == nil || mig.Error.Code != api.CodeSizeMismatch || d.world.Connected(volumePath) {
			t.Errorf("it ended with %v, connected %v", mig.Error, d.world.Connected(volumePath))
		}
		d.stayed()
	})
}
