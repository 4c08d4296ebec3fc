// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// death is a daemon that is killed in the middle of a step: the goroutine of the op
// stands still where it is.
type death struct {
	reached, released chan struct{}
}

func newDeath() *death { return &death{make(chan struct{}), make(chan struct{})} }

// die is called by the goroutine that goes on no more. The next ones pass.
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

// reboot waits for the death, lets something happen, and boots another daemon.
func (d *daemon) reboot(x *death, happen func()) {
	<-x.reached
	d.Replace(happen)
	d.t.Cleanup(func() { close(x.released) })
}

// TestOnlyWhatTheMigrationMadeIsTakenForDstAfterACrash: the file at the path of dst was
// made by somebody else, or by the daemon that died.
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

// TestAVolumeThatAPoolMadeWhenTheDaemonDiedIsTakenForDst: its name carries the id of the
// migration, and was free before.
func TestAVolumeThatAPoolMadeWhenTheDaemonDiedIsTakenForDst(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		x := newDeath()
		d.world.Inject(hvtest.Fault{Call: "CreateVolume", After: true, Do: x.die})
		id := d.migrate()
		d.reboot(x, func() {})
		d.moved(d.until(id, api.MigrationCompleted))
	})
}

// TestACancelDeletesOnlyTheDstThatTheMigrationMade: somebody has put another image in its
// place meanwhile.
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
