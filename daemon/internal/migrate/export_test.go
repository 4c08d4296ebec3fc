// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/monitor"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// offline makes worlds with a disk that can have no overlay.
func offline(world func(*testing.T, hv.State) *migratetest.World) func(*testing.T, hv.State) *migratetest.World {
	return func(t *testing.T, state hv.State) *migratetest.World {
		t.Helper()
		w := world(t, state)
		w.Redefine(t, func(dom *hv.Domain) { dom.Config[0].Shareable, dom.Config[0].Chain = true, []hv.Image{w.Src} })
		return w
	}
}

func TestAVolumeGoesFromAndToAnImageWhileItsInstanceIsKeptOffWhateverHappensAtEveryCall(t *testing.T) {
	for name, c := range map[string]struct {
		world func(*testing.T, hv.State) *migratetest.World
		to    hv.Image
	}{
		"from an image to an export": {migratetest.RBDWorld, migratetest.OtherExport},
		"from an export to an image": {migratetest.ExportWorld, migratetest.OtherRBD},
		"from a file to an image":    {migratetest.NewWorld, migratetest.OtherRBD},
		"from an image to an image":  {migratetest.RBDWorld, migratetest.OtherRBD},
	} {
		for what, happen := range map[string]func(d *daemon) hvtest.Fault{
			"the daemon dies": func(d *daemon) hvtest.Fault { return hvtest.Fault{Do: func() { go d.Restart() }} },
			"libvirt goes away after it": func(d *daemon) hvtest.Fault {
				return hvtest.Fault{After: true, Do: func() { awayFor(d, 3*time.Second) }}
			},
			"the guest is to be started": func(d *daemon) hvtest.Fault { return hvtest.Fault{Do: func() { _ = d.world.Start(testInstance) }} },
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				everyCallOn(t, offline(c.world), hv.StateStopped, func(t *testing.T, d *daemon, fault hvtest.Fault) {
					t.Helper()
					must(t, d.world.CreateImage(c.to.Path, hvtest.Raw, testSize))
					d.world.Copier.Gate = make(chan struct{})
					id := d.migrateTo(api.MigrationTarget{ToPath: c.to.Path})
					d.until(id, api.MigrationCopying)
					d.world.Inject(fault)
					close(d.world.Copier.Gate)
					mig := d.until(id, api.MigrationCompleted)
					calm(d)
					if err := d.world.SettledOn(c.to); err != nil {
						t.Error(err)
					}
					if at := d.world.Registry.CurrentVolume().Location.Path; at != c.to.Path || mig.Method != move.MethodOffline {
						t.Errorf("by %s the volume went to %s", mig.Method, at)
					}
				}, happen)
			})
		}
	}
}

func TestWhatIsNotDoneWithAVolumeAtAnExportIsRefusedByNameAndChangesNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		state  hv.State
		target api.MigrationTarget
		code   api.Code
		says   string
	}{
		{"delete the source", hv.StateStopped, api.MigrationTarget{ToPool: "new", DeleteSource: true}, api.CodeInvalidArgument, "leave out --delete-source"},
		{"mirror", hv.StateRunning, api.MigrationTarget{ToPool: "new", Method: move.MethodMirror}, api.CodeUnsupportedDisk, "leave out --method"},
		{"to itself", hv.StateStopped, api.MigrationTarget{ToPath: migratetest.Export.Path}, api.CodeSameLocation, ""},
		{"to a cluster that is not listed", hv.StateStopped, api.MigrationTarget{ToPath: "rbd://00000000-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/web"}, api.CodePermissionDenied, ""},
	} {
		for at, world := range map[string]func(*testing.T, hv.State) *migratetest.World{"an export": migratetest.ExportWorld, "an image": migratetest.RBDWorld} {
			t.Run(c.name+", at "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDaemon(t, world(t, c.state))
					target := c.target
					if c.code == api.CodeSameLocation {
						target.ToPath = d.world.Src.Path
					}
					_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true})
					if api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
						t.Errorf("got %v, want %s that says %q", err, c.code, c.says)
					}
					d.stayed()
				})
			})
		}
	}
}

// A shareable disk can have no overlay.
func TestADiskThatCanHaveNoOverlayIsMovedFromAnExportWhileItIsKeptOff(t *testing.T) {
	for state, want := range map[hv.State]api.Code{hv.StateRunning: api.CodeUnsupportedDisk, hv.StateStopped: ""} {
		inBubbleOn(t, migratetest.ExportWorld, hv.StateStopped, func(t *testing.T, d *daemon) {
			d.world.Redefine(t, func(dom *hv.Domain) {
				dom.Config[0].Shareable, dom.Config[0].Chain = true, []hv.Image{migratetest.Export}
			})
			if state.Active() {
				must(t, d.world.Start(testInstance))
			}
			mig, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool, Composite: true})
			if api.CodeOf(err) != want {
				t.Fatalf("%s: %v, want %q", state, err, want)
			}
			if want == "" {
				if end := d.until(mig.ID, api.MigrationCompleted); end.Method != move.MethodOffline {
					t.Errorf("moved by %s", end.Method)
				}
			}
		})
	}
}

// The cluster's own id identifies an image, not its name.
func TestAnRBDImageThatWasMadeAnewIsNeitherCopiedNorWritten(t *testing.T) {
	other := migratetest.OtherRBD.Path
	for which, code := range map[string]api.Code{migratetest.RBD.Path: api.CodeChainChanged, other: api.CodeDstInUse} {
		t.Run(which, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDaemon(t, migratetest.RBDWorld(t, hv.StateStopped))
				must(t, d.world.CreateImage(other, hvtest.Raw, testSize))
				id := d.begin(api.MigrationTarget{ToPath: other}).ID
				if which != other {
					d.removesSnapshot(id) // a snapshot prevents the removal of the image
				}
				must(t, d.world.Remove(which))
				must(t, d.world.CreateImage(which, hvtest.Raw, testSize))
				_, _, err := d.manager().Copy(context.Background(), d.call(id))
				must(t, err)
				if mig := d.until(id, api.MigrationStarted, api.MigrationCopied); mig.Error == nil || mig.Error.Code != code {
					t.Errorf("the copy ends as %s with %v, want %s", mig.State, mig.Error, code)
				}
			})
		})
	}
}

func TestAGuestThatAMoveHasAskedByItsMonitorIsNamedForAsLongAsItsProcessLives(t *testing.T) {
	for kind, world := range migratetest.LiveKinds {
		inBubbleOn(t, world, hv.StateRunning, func(t *testing.T, d *daemon) {
			want := 1
			bitmaps := d.world.Registry.CurrentVolume().Location.Format == api.FormatQcow2
			if d.world.Src.Type != hv.SourceNetwork && medium.Of(d.world.To.ToPath).Path && !bitmaps {
				want = 0
			}
			id := d.migrate()
			d.until(id, api.MigrationCompleted)
			got, err := d.manager().Monitor.TaintedGuests(t.Context())
			if err != nil || len(got) != want || want == 1 && got[0] != (monitor.TaintedGuest{InstanceName: "web", MigrationID: id, VolumeName: "vol"}) {
				t.Errorf("%s: %+v, %v, want %d", kind, got, err, want)
			}
			must(t, d.world.Destroy(testInstance))
			must(t, d.world.Start(testInstance))
			if got, err := d.manager().Monitor.TaintedGuests(t.Context()); err != nil || len(got) != 0 {
				t.Errorf("%s, in another process: %+v, %v", kind, got, err)
			}
		})
	}
}

// Nothing shows whether the guest was started on an export since: the export may have the newer
// writes.
func TestADefinitionThatNamesASourceAtAnAddressIsNotRepaired(t *testing.T) {
	inBubbleOn(t, migratetest.ExportWorld, hv.StateStopped, func(t *testing.T, d *daemon) {
		mig := d.begin(d.world.To)
		d.world.Redefine(t, func(dom *hv.Domain) { dom.Config[0].Chain = []hv.Image{d.world.Src} })
		if _, err := d.manager().Monitor.Misnamed(t.Context(), testInstance, false); api.CodeOf(err) != api.CodeChainChanged {
			t.Errorf("got %v, want %s", err, api.CodeChainChanged)
		}
		if !d.world.Exists(overlayOf(mig)) {
			t.Error("the overlay is gone")
		}
	})
}

// The command in the refusal states that it was not, and names the overlay: the move continues.
func TestADefinitionThatNamesASourceAtAnAddressIsRepairedOnAPersonsWord(t *testing.T) {
	inBubbleOn(t, migratetest.ExportWorld, hv.StateStopped, func(t *testing.T, d *daemon) {
		mig := d.begin(d.world.To)
		d.world.Redefine(t, func(dom *hv.Domain) { dom.Config[0].Chain = []hv.Image{d.world.Src} })
		refused := d.repair(t.Context())
		if api.CodeOf(refused) != api.CodeChainChanged {
			t.Fatalf("got %v, want %s", refused, api.CodeChainChanged)
		}
		d.types(hosttest.CommandsIn(refused.Error())...)
		dom, err := d.world.Fake.Domain(t.Context(), testInstance)
		must(t, err)
		if path := dom.ConfigDisk("vda").Top().Path; path != overlayOf(mig) {
			t.Errorf("the definition names %s, want the overlay", path)
		}
		d.copyAndCancel(mig.ID)
		d.stayed()
	})
}

func TestNothingIsFoldedIntoAnExportThatAStrangerHas(t *testing.T) {
	theSrc := func(d *daemon) hv.Image { return d.world.Src }
	theDst := func(*daemon) hv.Image { return migratetest.OtherExport }
	for name, c := range map[string]struct {
		world func(*testing.T, hv.State) *migratetest.World
		state hv.State
		into  func(*daemon) hv.Image
		end   func(*Manager, context.Context, Call) (api.Migration, string, error)
		code  api.Code
	}{
		"complete of a stopped guest": {migratetest.ToAddress(migratetest.NewWorld, migratetest.OtherExport), hv.StateStopped, theDst, (*Manager).Complete, api.CodeDstInUse},
		"cancel of a stopped guest":   {migratetest.ExportWorld, hv.StateStopped, theSrc, (*Manager).Cancel, api.CodeVolumeInUse},
		"cancel of a running guest":   {migratetest.ExportWorld, hv.StateRunning, theSrc, (*Manager).Cancel, api.CodeVolumeInUse},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, c.world, c.state, func(t *testing.T, d *daemon) {
				mig := d.copied()
				before, err := d.world.Info(c.into(d).Path)
				must(t, err)
				must(t, d.world.Define(hv.Domain{ID: testHost, Name: "stranger", Config: []hv.Disk{{Target: "vdb", Terminated: true, Chain: []hv.Image{c.into(d)}}}}))
				call := d.call(mig.ID)
				call.DstAttachmentID = mig.DstAttachmentID
				_, _, err = c.end(d.manager(), context.Background(), call)
				must(t, err)
				if err := d.ended(call.OpID); api.CodeOf(err) != c.code {
					t.Errorf("got %v, want %s", err, c.code)
				}
				if after, err := d.world.Info(c.into(d).Path); err != nil || after.Written != before.Written {
					t.Errorf("%s was written: %v", c.into(d).Path, err)
				}
				d.leaveSrc()
			})
		})
	}
}

// Then the guest's flushed writes may be only in its process, and nothing flushes an export.
func TestADiskWhoseFlushesAreLeftOutIsNotMovedFromOrToAnImage(t *testing.T) {
	for name, world := range map[string]func(*testing.T, hv.State) *migratetest.World{
		"from": migratetest.RBDWorld, "to": migratetest.ToAddress(migratetest.NewWorld, migratetest.OtherRBD),
		"from an export": migratetest.ExportWorld, "to an export": migratetest.ToAddress(migratetest.NewWorld, migratetest.OtherExport),
	} {
		inBubbleOn(t, world, hv.StateStopped, func(t *testing.T, d *daemon) {
			d.world.Redefine(t, func(dom *hv.Domain) {
				dom.Config[0].Cache, dom.Config[0].Chain = "unsafe", []hv.Image{d.world.Src}
			})
			_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: d.world.To, Composite: true})
			if api.CodeOf(err) != api.CodeUnsupportedDisk {
				t.Errorf("%s: %v", name, err)
			}
			d.stayed()
		})
	}
}

// An NBD server reads from its own cache, which still has what it could not store: equal images are
// no proof.
func TestAnExportThatMayNotHaveStoredTheFoldIsWrittenAgain(t *testing.T) {
	toExport := migratetest.ToAddress(migratetest.NewWorld, migratetest.OtherExport)
	end := migratetest.OtherExport.Path
	dies := func(d *daemon) { must(d.t, d.world.Destroy(testInstance)) }
	for name, c := range map[string]struct {
		world   func(*testing.T, hv.State) *migratetest.World
		prepare func(d *daemon)
		again   bool
	}{
		"QEMU dies in the pause, a file": {migratetest.NewWorld, func(d *daemon) { d.world.Inject(hvtest.Fault{Call: "Pivot", Do: func() { dies(d) }}) }, false},
		"QEMU dies in the pause":         {toExport, func(d *daemon) { d.world.Inject(hvtest.Fault{Call: "Pivot", Do: func() { dies(d) }}) }, true},
		"its flush fails after the pivot": {toExport, func(d *daemon) {
			d.when("settle", op.EventStarted, func() { dies(d); d.loses(end) })
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, c.world, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.copied()
				d.writesALot()
				c.prepare(d)
				d.world.Guards.NotEnforced = errors.New("libvirt runs no hook")
				d.completes(mig)
				now := d.untilItStands(mig.ID)
				if want := map[bool]api.MigrationState{true: api.MigrationNeedsOperator, false: api.MigrationCompleted}[c.again]; now.State != want {
					t.Errorf("without a hook the migration is %s (%v), want %s", now.State, now.Error, want)
				}
				d.world.Guards.NotEnforced = nil
				if c.again {
					d.completes(mig)
					d.until(mig.ID, api.MigrationCompleted)
				}
				if again := slices.Contains(d.world.Images.Durable, "fold into "+end); again != c.again {
					t.Errorf("%s was written again: %t, want %t", end, again, c.again)
				}
				d.world.AssertNoWriteLost(t)
			})
		})
	}
}

// A client that appears during the move may write to src, and nothing shows it afterwards.
func TestASourceThatAnotherClientHasIsNotCopied(t *testing.T) {
	inBubbleOn(t, migratetest.RBDWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(d.world.To)
		d.world.Images.Users = map[string]string{d.world.Src.Path: "a client of Ceph has it open"}
		call := d.call(mig.ID)
		_, _, err := d.manager().Copy(context.Background(), call)
		must(t, err)
		if err := d.ended(call.OpID); api.CodeOf(err) != api.CodeVolumeInUse {
			t.Errorf("got %v, want %s", err, api.CodeVolumeInUse)
		}
		d.world.Images.Users = nil
		d.copyAndCancel(mig.ID)
	})
}
