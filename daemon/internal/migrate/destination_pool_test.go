// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// lvPath is a device of the pool lvm of hasPool, in a directory that exists on every machine.
const lvPath = "/dev/pts/vf-lv"

// hasPool adds a pool of devices with one device of this size, which is no volume.
func hasPool(t *testing.T, w *migratetest.World, poolType string, sizeBytes int64) {
	t.Helper()
	w.AddPool(hv.PoolInfo{Name: "lvm", Type: poolType, Path: "/dev/pts", Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
	must(t, w.CreateImage(lvPath, hvtest.Raw, sizeBytes))
}

// onLV is hasPool with the volume moved to its device.
func onLV(t *testing.T, d *daemon) {
	t.Helper()
	hasPool(t, d.world, "logical", testSize)
	d.until(d.migrateTo(api.MigrationTarget{ToPath: lvPath}), api.MigrationCompleted)
}

// isIn checks that a move has brought the volume into a pool, in the plan, the registry and the
// migration.
func (d *daemon) isIn(t *testing.T, pool, name string, plan api.MigrationPlan, mig api.Migration) {
	t.Helper()
	for what, l := range map[string]api.Location{
		"plan": plan.Dst, "reservation": d.world.Registry.Last.Dst, "move": mig.Dst, "volume": d.world.Registry.CurrentVolume().Location,
	} {
		if l.Pool != pool || l.Name != name || l.Path != mig.Dst.Path {
			t.Errorf("by the %s it is %q of pool %q, at %s", what, l.Name, l.Pool, l.Path)
		}
	}
}

// moveInto makes a move, and also returns its plan.
func (d *daemon) moveInto(t *testing.T, target api.MigrationTarget) (api.MigrationPlan, api.Migration) {
	t.Helper()
	plan, err := d.manager().Plan(t.Context(), testVolume, target)
	must(t, err)
	return plan, d.until(d.migrateTo(target), api.MigrationCompleted)
}

// The device may be in any pool.
func TestAVolumeThatGoesToADeviceOfAPoolByItsPathIsInThatPool(t *testing.T) {
	for _, state := range allStates {
		for _, poolType := range []string{"logical", hv.ConnectorPool} {
			for _, method := range []string{"", api.MethodMirror} {
				t.Run(string(state)+" "+poolType+" "+method, func(t *testing.T) {
					inBubble(t, state, func(t *testing.T, d *daemon) {
						hasPool(t, d.world, poolType, testSize)
						plan, mig := d.moveInto(t, api.MigrationTarget{ToPath: lvPath, Method: method})
						d.isIn(t, "lvm", filepath.Base(lvPath), plan, mig)
						d.moved(mig)
						if plan.CreatesDestination {
							t.Error("by the plan the device is made")
						}
					})
				})
			}
		}
	}
}

// dst is the beginning of a device, an image on one, or a file.
func TestADestinationInAPoolIsFoundThereWhateverItIs(t *testing.T) {
	for name, c := range map[string]struct {
		world  func(*testing.T, hv.State) *migratetest.World
		bytes  int64
		target api.MigrationTarget
		pool   string
	}{
		"the beginning of a device":   {migratetest.NewWorld, 2 * testSize, api.MigrationTarget{ToPath: lvPath}, "lvm"},
		"an image on a device":        {migratetest.DeviceWorld, migratetest.DeviceBytes, api.MigrationTarget{ToPath: lvPath, ToFormat: api.FormatQcow2}, "lvm"},
		"an external copy":            {migratetest.NewWorld, testSize, api.MigrationTarget{ToPath: lvPath, ExternalCopy: true}, "lvm"},
		"a file":                      {migratetest.NewWorld, testSize, api.MigrationTarget{ToPath: "/run/vf-file.raw"}, "files"},
		"a device in no pool":         {migratetest.NewWorld, testSize, api.MigrationTarget{ToPath: "/dev/vf-other"}, ""},
		"a device of a pool of disks": {migratetest.NewWorld, testSize, api.MigrationTarget{ToPath: "/dev/vf-disk"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, c.world, hv.StateRunning, func(t *testing.T, d *daemon) {
				hasPool(t, d.world, "logical", c.bytes)
				d.world.AddPool(hv.PoolInfo{Name: "files", Type: "dir", Path: "/run", Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
				if name == "a device of a pool of disks" {
					d.world.AddPool(hv.PoolInfo{Name: "disks", Type: "disk", Path: "/dev", Active: true})
				}
				if c.target.ToPath != lvPath {
					must(t, d.world.CreateImage(c.target.ToPath, hvtest.Raw, testSize))
				}
				want := filepath.Base(c.target.ToPath)
				if c.pool == "" {
					want = ""
				}
				plan, err := d.manager().Plan(t.Context(), testVolume, c.target)
				must(t, err)
				id := d.migrateTo(c.target)
				if c.target.ExternalCopy {
					mig := d.until(id, api.MigrationStarted)
					must(t, d.world.Copy(srcPath, lvPath))
					d.completes(mig)
				}
				mig := d.until(id, api.MigrationCompleted)
				d.isIn(t, c.pool, want, plan, mig)
				d.moved(mig)
			})
		})
	}
}

// The registry finds that pool.
func TestAFileThatAMoveMakesIsNotMadeByThePoolOfItsDirectory(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		dir := t.TempDir()
		d.world.AddPool(hv.PoolInfo{Name: "files", Type: "dir", Path: dir, Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
		made := false
		d.world.Inject(hvtest.Fault{Call: "CreateVolume", Do: func() { made = true }})
		plan, mig := d.moveInto(t, api.MigrationTarget{ToPath: filepath.Join(dir, "new.raw")})
		d.isIn(t, "", "", plan, mig)
		if made {
			t.Error("the pool has made it")
		}
	})
}

// The move is cancelled, or ends in any way, and the daemon dies at any of its calls.
func TestADeviceOfAPoolThatWasThereIsNeitherMadeNorDeleted(t *testing.T) {
	for name, simulate := range map[string]simulation{
		"cancelled": func(t *testing.T, d *daemon, fault hvtest.Fault) {
			simulateCancelOf(t, d, d.begin(d.world.To), fault)
		},
		"as it may": func(_ *testing.T, d *daemon, fault hvtest.Fault) {
			d.world.Inject(fault)
			d.endsSomehow(true, 0)
			calm(d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulateOn := func(t *testing.T, d *daemon, fault hvtest.Fault) {
				hasPool(t, d.world, "logical", testSize)
				d.world.To = api.MigrationTarget{ToPath: lvPath}
				born := d.world.Born(t, lvPath)
				for _, change := range []string{"CreateVolume", "ExtendVolume", "DeleteVolume"} {
					d.world.Inject(hvtest.Fault{Call: change, Do: func() { t.Errorf("%s was called", change) }})
				}
				simulate(t, d, fault)
				if !d.world.Exists(lvPath) || d.world.Born(t, lvPath) != born {
					t.Error("the device is another one, or gone")
				}
			}
			everyCallOn(t, migratetest.NewWorld, hv.StateRunning, simulateOn, func(d *daemon) hvtest.Fault {
				return hvtest.Fault{Do: func() { go d.Restart() }}
			})
		})
	}
}

// The pool deletes it although a move by path has brought the volume there.
func TestADeviceIsDeletedByItsPoolWhenTheVolumeHasMovedOn(t *testing.T) {
	for _, state := range allStates {
		for _, later := range []bool{false, true} {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				onLV(t, d)
				deleted := false
				d.world.Inject(hvtest.Fault{Call: "DeleteVolume", Do: func() { deleted = true }})
				on := toNewPool
				on.DeleteSource = !later
				mig := d.until(d.migrateTo(on), api.MigrationCompleted)
				if later {
					if !d.world.Exists(lvPath) {
						t.Error("it is deleted, and nobody has asked for that")
					}
					must(t, d.deleteSource(mig.ID))
				}
				if d.world.Exists(lvPath) || !deleted {
					t.Errorf("%s, later %t: the device is there: %t; its pool was told: %t", state, later, d.world.Exists(lvPath), deleted)
				}
				d.moved(mig)
			})
		}
	}
}

// A move to the same pool has no effect; a move to another device of it is possible, and so is a
// move back to the first device after the volume has left it.
func TestAVolumeThatCameToAPoolByItsPathIsInItForTheNextMove(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		onLV(t, d)
		for _, same := range []api.MigrationTarget{{ToPool: "lvm"}, {ToPath: lvPath}} {
			_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: same, Composite: true})
			if api.CodeOf(err) != api.CodeSameLocation {
				t.Errorf("to %+v: %v, want same_location", same, err)
			}
		}
		const other = lvPath + "2"
		must(t, d.world.CreateImage(other, hvtest.Raw, testSize))
		for _, path := range []string{other, lvPath} {
			plan, mig := d.moveInto(t, api.MigrationTarget{ToPath: path})
			d.isIn(t, "lvm", filepath.Base(path), plan, mig)
			d.moved(mig)
		}
	})
}

// The pools of the other guests' hosts may differ.
func TestTheDestinationOfAMoveThatTheRegistryLeadsStaysAsItWasReserved(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		hasPool(t, d.world, "logical", testSize)
		in := copySaved()
		in.Dst = api.Location{Path: lvPath, Format: in.Dst.Format, SizeBytes: in.Dst.SizeBytes}
		err := d.manager().Parts.CopySaved(context.Background(), savedCopy, in)
		must(t, err)
		o := d.untilOp(savedCopy)
		want := in.Dst
		want.Identity = "born-2"
		if o.State != string(op.StateDone) || o.Location == nil || *o.Location != want {
			t.Errorf("the op is %s (%v) at %+v, want %+v", o.State, o.Error, o.Location, want)
		}
	})
}

// addTarget adds a target with a volume, and the pool of its connector, to a host.
func addTarget(t *testing.T, w *migratetest.World, pools ...string) {
	t.Helper()
	must(t, w.AddTarget(migratetest.DstUnit, testSize))
	for _, name := range pools {
		w.AddPool(hv.PoolInfo{Name: name, Type: hv.ConnectorPool, Path: "/dev/pts", Active: true, NoCreate: true})
	}
}

// The pool is named unless several pools may connect it.
func TestAVolumeOfATargetIsInThePoolThatConnectsIt(t *testing.T) {
	for name, c := range map[string]struct {
		pools     []string
		connected bool
		want      string
	}{
		"the only pool":                {[]string{"san"}, false, "san"},
		"the only pool, connected":     {[]string{"san"}, true, "san"},
		"two pools":                    {[]string{"san", "san2"}, false, ""},
		"no pool that is active":       {nil, false, ""},
		"no pool, and it is connected": {nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				addTarget(t, d.world, c.pools...)
				if c.connected {
					must(t, d.world.Fake.ConnectDevice(t.Context(), migratetest.DstUnit))
				}
				plan, mig := d.moveInto(t, api.MigrationTarget{ToPath: migratetest.DstUnit})
				want := ""
				if c.want != "" {
					want = filepath.Base(migratetest.DstUnit)
				}
				d.isIn(t, c.want, want, plan, mig)
				d.moved(mig)
				if plan.CreatesDestination || plan.ConnectsDestination == c.connected {
					t.Errorf("the plan is %+v", plan)
				}
			})
		})
	}
}

// Nothing is frozen: the pool was replaced since the request.
func TestAVolumeOfATargetThatItsPoolDoesNotHaveIsDisconnected(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		addTarget(t, d.world, "san")
		d.world.Inject(hvtest.Fault{Call: "ConnectDevice", After: true, Do: func() {
			d.world.AddPool(hv.PoolInfo{Name: "san", Type: hv.ConnectorPool, Path: "/dev/vf-other", Active: true, NoCreate: true})
		}})
		mig := d.until(d.migrateTo(api.MigrationTarget{ToPath: migratetest.DstUnit}), api.MigrationError)
		if mig.Error == nil || mig.Error.Code != api.CodeNotFound || !strings.Contains(mig.Error.Message, "san") {
			t.Errorf("it ended with %v, want not_found", mig.Error)
		}
		if d.world.Connected(migratetest.DstUnit) {
			t.Error("it is connected")
		}
		d.stayed()
	})
}

// Such a pool makes and removes no volumes.
func TestAVolumeOfATargetThatCameByItsPathIsNotDeletedByItsPool(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		addTarget(t, d.world, "san")
		d.until(d.migrateTo(api.MigrationTarget{ToPath: migratetest.DstUnit}), api.MigrationCompleted)
		d.world.Inject(hvtest.Fault{Call: "DeleteVolume", Do: func() { t.Error("its pool was told to delete it") }})
		on := toNewPool
		on.DeleteSource = true
		_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: on, Composite: true})
		if api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("a move that deletes it is %v, want invalid_argument", err)
		}
		mig := d.until(d.migrateTo(toNewPool), api.MigrationCompleted)
		if d.world.Connected(migratetest.DstUnit) {
			t.Error("it is connected after the volume has left it")
		}
		if err := d.deleteSource(mig.ID); err == nil {
			t.Error("it is deleted afterwards")
		}
		d.moved(mig)
	})
}

// It is copied like a destination in no pool.
func TestADestinationOfAPoolIsCopiedByItsStorage(t *testing.T) {
	inBubbleOn(t, migratetest.TargetWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.until(d.migrate(), api.MigrationCompleted)
		if offload := d.world.Copier.Last.Offload; mig.Dst.Pool != "target" || offload == nil || !offload.Offered {
			t.Errorf("it is in pool %q, and its copy was %+v", mig.Dst.Pool, offload)
		}
		d.moved(mig)
	})
}
