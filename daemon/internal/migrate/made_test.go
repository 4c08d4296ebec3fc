// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// death simulates a daemon that is killed in the middle of a step: the goroutine of the op stops.
type death struct {
	reached, released chan struct{}
}

func newDeath() *death { return &death{make(chan struct{}), make(chan struct{})} }

// die is called by the goroutine that must stop. Later callers pass.
func (x *death) die() {
	select {
	case <-x.reached:
		return
	default:
	}
	close(x.reached)
	<-x.released
	runtime.Goexit()
}

// reboot waits for the death, runs happen, and starts another daemon.
func (d *daemon) reboot(x *death, happen func()) {
	<-x.reached
	d.Replace(happen)
	d.t.Cleanup(func() { close(x.released) })
}

// Another program, or the daemon that died, made the file at the path of dst.
func TestOnlyWhatTheMigrationMadeIsTakenForDstAfterACrash(t *testing.T) {
	for _, moment := range []string{"whole", "noted", "linked"} {
		for name, stranger := range map[string]bool{"ours": false, "somebody else's": true} {
			t.Run(moment+", "+name, func(t *testing.T) {
				inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
					path, x := filepath.Join(t.TempDir(), "dst.raw"), newDeath()
					d.world.Images.OnCreate = func(m string) {
						if m == moment {
							x.die()
						}
					}
					id := d.migrateTo(api.MigrationTarget{ToPath: path})
					var born int64
					var temporary string
					d.reboot(x, func() {
						temporary = d.world.Images.Temporary
						if stranger {
							born = d.world.Replace(t, path)
						}
					})
					if !stranger {
						d.moved(d.until(id, api.MigrationCompleted))
					} else {
						mig := d.until(id, api.MigrationError)
						if mig.Error == nil || mig.Error.Code != api.CodeDstInUse {
							t.Errorf("it ended with %v, want dst_in_use", mig.Error)
						}
						if !d.world.Exists(path) || d.world.Born(t, path) != born {
							t.Error("the file of somebody else is gone")
						}
						d.stayed()
					}
					if d.world.Exists(temporary) {
						t.Error("the temporary file is left")
					}
				})
			})
		}
	}
}

// Its name contains the migration's id, and was free before.
func TestAVolumeThatAPoolMadeWhenTheDaemonDiedIsTakenForDst(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		x := newDeath()
		d.world.Inject(hvtest.Fault{Call: "CreateVolume", After: true, Do: x.die})
		id := d.migrate()
		d.reboot(x, func() {})
		d.moved(d.until(id, api.MigrationCompleted))
	})
}

// libvirt leaves the file of a qemu-img that died before the image had its header, and returns an
// error, or the daemon died too.
func TestWhatAPoolHasLeftOfAnImageIsNoDestination(t *testing.T) {
	for _, died := range []bool{false, true} {
		t.Run(fmt.Sprintf("and the daemon died, %v", died), func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				x, ids := newDeath(), make(chan string, 1)
				var path string
				d.world.Inject(hvtest.Fault{Call: "CreateVolume", Err: errors.New("qemu-img died"), Do: func() {
					mig, err := d.manager().Get(context.Background(), <-ids)
					must(t, err)
					path = mig.Dst.Path
					must(t, d.world.Fake.CreateImage(path, "no header", 0))
					if died {
						x.die()
					}
				}})
				id := d.migrateTo(api.MigrationTarget{ToPool: "new", ToFormat: api.FormatQcow2})
				ids <- id
				if !died {
					d.until(id, api.MigrationError)
					if d.world.Exists(path) {
						t.Error("what was left of the image is there still")
					}
					d.stayed()
					return
				}
				d.reboot(x, func() {})
				mig := d.until(id, api.MigrationCompleted)
				must(t, d.world.SettledOn(hv.Image{Type: hv.SourceFile, Path: mig.Dst.Path, Format: hvtest.Qcow2}))
			})
		})
	}
}

// Another program has replaced dst by another image.
func TestACancelDeletesOnlyTheDstThatTheMigrationMade(t *testing.T) {
	for name, pool := range map[string]string{"at a path": "", "in a pool": "new"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				target := api.MigrationTarget{ToPool: pool}
				if pool == "" {
					target.ToPath = filepath.Join(t.TempDir(), "dst.raw")
				}
				mig := d.begin(target)
				born := d.world.Replace(t, mig.Dst.Path)
				_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCancelled)
				synctest.Wait()
				if !d.world.Exists(mig.Dst.Path) || d.world.Born(t, mig.Dst.Path) != born {
					t.Error("the image of somebody else is gone")
				}
				d.stayed()
			})
		})
	}
}
