// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// larger makes an image that is larger than the world's volume, with foreign data at its end.
func (d *daemon) larger(t *testing.T) api.MigrationTarget {
	t.Helper()
	return d.largerAt(t, t.TempDir()+"/larger.raw")
}

func (d *daemon) largerAt(t *testing.T, path string) api.MigrationTarget {
	t.Helper()
	must(t, d.world.CreateImage(path, hvtest.Raw, testSize+2*hvtest.BlockSize))
	must(t, d.world.WriteBlock(path, testBlocks+1, 4711))
	return api.MigrationTarget{ToPath: path}
}

// tailIsLeft checks that nothing was written after the volume.
func (d *daemon) tailIsLeft(t *testing.T, path string) {
	t.Helper()
	content, err := d.world.ReadImage(path)
	must(t, err)
	if content[testBlocks] != 0 || content[testBlocks+1] != 4711 {
		t.Errorf("behind the volume there is %d, %d", content[testBlocks], content[testBlocks+1])
	}
}

// This holds for all methods, and the guest sees no other size.
func TestAVolumeGoesToTheBeginningOfALargerImageAndOnFromThere(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StatePaused, hv.StateStopped} {
		for _, method := range []string{"", api.MethodMirror} {
			t.Run(string(state)+" "+method, func(t *testing.T) {
				inBubble(t, state, func(t *testing.T, d *daemon) {
					target := d.larger(t)
					target.Method = method
					mig := d.until(d.migrateTo(target), api.MigrationCompleted)
					if mig.Dst.SizeBytes != testSize || mig.Dst.ImageBytes != testSize+2*hvtest.BlockSize {
						t.Errorf("dst is %+v", mig.Dst)
					}
					d.moved(mig)
					d.tailIsLeft(t, target.ToPath)
					if state.Active() {
						stats, err := d.world.DiskStats(context.Background(), testInstance, "vda")
						must(t, err)
						if stats.CapacityBytes != testSize {
							t.Errorf("the guest sees %d bytes", stats.CapacityBytes)
						}
					}
					on := toNewPool
					on.Method = method
					mig = d.until(d.migrateTo(on), api.MigrationCompleted)
					d.moved(mig)
					d.tailIsLeft(t, target.ToPath)
				})
			})
		}
	}
}

// The pool's volume is larger than ours.
func TestAPoolThatRoundsIsAskedBeforeAnythingBegins(t *testing.T) {
	const extent = testSize - hvtest.BlockSize
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				d.world.AddPool(hv.PoolInfo{Name: "lvm", Type: "logical", Path: "/dev/vg", Active: true, CapacityBytes: 1 << 40, FreeBytes: 2*extent - 1})
				d.world.RoundUp("lvm", extent)
				if _, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: api.MigrationTarget{ToPool: "lvm"}}); api.CodeOf(err) != api.CodeNoSpace {
					t.Errorf("a pool without room for a whole extent: %v", err)
				}
				d.world.AddPool(hv.PoolInfo{Name: "lvm", Type: "logical", Path: "/dev/vg", Active: true, CapacityBytes: 1 << 40, FreeBytes: 2 * extent})
				mig := d.until(d.migrateTo(api.MigrationTarget{ToPool: "lvm"}), api.MigrationCompleted)
				if mig.Dst.SizeBytes != testSize || mig.Dst.ImageBytes != 2*extent {
					t.Errorf("dst is %+v", mig.Dst)
				}
			})
		})
	}
}

// src is a slice, and dst is another one.
func TestAMoveFromAndToALargerImageIsCancelled(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				first := d.until(d.migrateTo(d.larger(t)), api.MigrationCompleted)
				mig := d.begin(d.larger(t))
				d.copyAndCancel(mig.ID)
				d.moved(first)
				d.tailIsLeft(t, first.Dst.Path)
				d.tailIsLeft(t, mig.Dst.Path)
			})
		})
	}
}

// As for a file, except the mirror.
func TestAVolumeGoesToTheBeginningOfWhatIsAtAnAddressAndOnFromThere(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StatePaused, hv.StateStopped} {
		for _, at := range []hv.Image{migratetest.OtherExport, migratetest.OtherRBD} {
			t.Run(string(state)+" "+at.Path, func(t *testing.T) {
				inBubble(t, state, func(t *testing.T, d *daemon) {
					first := d.until(d.migrateTo(d.largerAt(t, at.Path)), api.MigrationCompleted)
					if first.Dst.SizeBytes != testSize || first.Dst.ImageBytes != testSize+2*hvtest.BlockSize {
						t.Errorf("dst is %+v", first.Dst)
					}
					d.moved(first)
					d.copyAndCancel(d.begin(d.larger(t)).ID)
					d.moved(first)
					d.moved(d.until(d.migrateTo(toNewPool), api.MigrationCompleted))
					d.tailIsLeft(t, at.Path)
				})
			})
		}
	}
}

// The image is refused.
func TestAnAddressAtWhichThereIsLessThanTheVolumeIsNoDestination(t *testing.T) {
	for _, at := range []hv.Image{migratetest.OtherExport, migratetest.OtherRBD} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			must(t, d.world.CreateImage(at.Path, hvtest.Raw, testSize-hvtest.BlockSize))
			_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: api.MigrationTarget{ToPath: at.Path}, Composite: true})
			if api.CodeOf(err) != api.CodeSizeMismatch {
				t.Errorf("%s: %v, want %s", at.Path, err, api.CodeSizeMismatch)
			}
			d.stayed()
		})
	}
}

// For an image at an address the seal is its size.
func TestWhatGrowsBehindTheVolumeIsNoWriteToIt(t *testing.T) {
	for _, at := range []hv.Image{migratetest.OtherExport, migratetest.OtherRBD} {
		for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				d.moved(d.until(d.migrateTo(d.largerAt(t, at.Path)), api.MigrationCompleted))
				id := d.begin(toNewPool).ID
				must(t, d.world.GrowImage(at.Path, 2*testSize))
				d.copyAndCancel(id)
				d.moved(d.until(d.migrateTo(toNewPool), api.MigrationCompleted))
				d.tailIsLeft(t, at.Path)
			})
		}
	}
}
