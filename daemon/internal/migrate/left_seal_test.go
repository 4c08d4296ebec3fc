// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// A foreign guest runs on src, and the end of a move therefore waits for the operator.
func TestASourceThatAStrangersGuestHasWrittenIsKept(t *testing.T) {
	for name, target := range map[string]api.MigrationTarget{
		"overlay": {ToPool: "new", DeleteSource: true},
		"mirror":  {ToPool: "new", Method: move.MethodMirror, DeleteSource: true, CopyOptions: api.CopyOptions{Verify: move.VerifyFull}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				d.when("release_source", op.EventStarted, func() {
					d.world.DefineOn(t, srcPath)
					must(t, d.world.Start(migratetest.SrcAttachment))
					must(t, d.world.Fake.GuestWrite(migratetest.SrcAttachment, "vda", 3, 1<<41))
				})
				mig := d.until(d.migrateTo(target), api.MigrationNeedsOperator)
				must(t, d.world.Stop(migratetest.SrcAttachment))
				must(t, d.world.Undefine(migratetest.SrcAttachment))
				mig = d.until(d.completes(mig), api.MigrationCompleted)
				if !d.world.Exists(srcPath) {
					t.Errorf("%s was deleted with what the guest of instance other has written there", srcPath)
				}
				if !strings.Contains(mig.Remark, "was written since") {
					t.Errorf("the remark is %q", mig.Remark)
				}
			})
		})
	}
}

// From the pivot on src is free, and the daemon may be dead before settle.
func TestASourceThatAStrangersGuestHasWrittenBeforeSettleIsKept(t *testing.T) {
	for name, target := range map[string]api.MigrationTarget{
		"overlay": {ToPool: "new", DeleteSource: true},
		"mirror":  {ToPool: "new", Method: move.MethodMirror, DeleteSource: true, CopyOptions: api.CopyOptions{Verify: move.VerifyFull}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				d.when("settle", op.EventStarted, func() { d.diesWhile(func() { d.otherGuestWrites(t, srcPath) }) })
				mig := d.until(d.migrateTo(target), api.MigrationCompleted)
				if !d.world.Exists(srcPath) {
					t.Errorf("%s was deleted with what the guest of instance other has written there", srcPath)
				}
				if !strings.Contains(mig.Remark, "was written since") {
					t.Errorf("the remark is %q", mig.Remark)
				}
			})
		})
	}
}

// otherGuestWrites makes another guest run on an image, write, and go.
func (d *daemon) otherGuestWrites(t *testing.T, path string) {
	t.Helper()
	d.world.DefineOn(t, path)
	must(t, d.world.Start(migratetest.SrcAttachment))
	must(t, d.world.Fake.GuestWrite(migratetest.SrcAttachment, "vda", 3, 1<<41))
	must(t, d.world.Stop(migratetest.SrcAttachment))
	must(t, d.world.Undefine(migratetest.SrcAttachment))
}

// QEMU may write tables as it closes a qcow2 image, and a stamp does not show who wrote.
func TestWhoWroteAMirroredQcow2SourceBeforeSettleIsUnknown(t *testing.T) {
	for _, written := range []bool{false, true} {
		inBubbleOn(t, migratetest.Qcow2World, hv.StateRunning, func(t *testing.T, d *daemon) {
			if written {
				d.world.Inject(hvtest.Fault{Call: "Pivot", After: true, Do: func() { must(t, d.world.Touch(srcPath)) }})
			}
			d.until(d.migrateTo(api.MigrationTarget{ToPool: "new", Method: move.MethodMirror}), api.MigrationCompleted)
			all := d.released()
			if len(all) != 1 || all[0].Written || (all[0].WrittenUnknown != "") != written {
				t.Errorf("written %t: %+v", written, all)
			}
			must(t, d.world.Touch(srcPath))
			if all = d.released(); len(all) != 1 || all[0].Written == written {
				t.Errorf("written %t, and once more after the move: %+v", written, all)
			}
		})
	}
}

// The counters of a device begin at zero when its host boots.
func TestOfADeviceThatIsLeftNobodyCanTellAfterAReboot(t *testing.T) {
	for _, method := range []string{api.MethodOverlay, api.MethodMirror} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				ctx := context.Background()
				path := filepath.Join(t.TempDir(), "left.raw")
				must(t, d.world.CreateImage(path, hvtest.Raw, testSize))
				must(t, os.WriteFile(path, nil, 0o600))
				d.world.Images.Devices = map[string]bool{path: true}
				d.until(d.migrateTo(api.MigrationTarget{ToPath: path, Overwrite: true}), api.MigrationCompleted)
				id := d.until(d.migrateTo(api.MigrationTarget{ToPool: "new", Method: method}), api.MigrationCompleted).ID
				of := func() api.ReleasedSource {
					for _, r := range d.released() {
						if r.MigrationID == id {
							return r
						}
					}
					t.Fatalf("%s is no released source", path)
					return api.ReleasedSource{}
				}
				back := func() error {
					_, err := d.manager().Plan(ctx, testVolume, api.MigrationTarget{ToPath: path})
					return err
				}
				if r := of(); r.Written || r.WrittenUnknown != "" {
					t.Errorf("untouched in its boot: %+v", r)
				}
				must(t, back())
				must(t, d.world.HostReboot())
				d.Restart()
				if r := of(); r.Written || !strings.Contains(r.WrittenUnknown, "booted") || r.Blocked == "" {
					t.Errorf("after a reboot: %+v, want one of which nobody can tell", r)
				}
				if err := back(); api.CodeOf(err) != api.CodeDstInUse || api.AsError(err).Details[api.DetailOverwrites] != path || !strings.Contains(err.Error(), "nobody can tell") {
					t.Errorf("a move back: %v, want dst_in_use with a question", err)
				}
				_, err := d.manager().Plan(ctx, testVolume, api.MigrationTarget{ToPath: path, Overwrite: true})
				must(t, err)
			})
		})
	}
}

func TestASourceOfWhichNobodyCanTellIsDeletedOnlyByForce(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		d.when("settle", op.EventStarted, func() { // so that no stamp of it is kept
			d.world.Images.Unreadable = srcPath
			d.when("publish_completed", op.EventStarted, func() { d.world.Images.Unreadable = "" })
		})
		mig := d.until(d.migrateTo(api.MigrationTarget{ToPool: "new", Method: api.MethodMirror, DeleteSource: true, CopyOptions: api.CopyOptions{Verify: move.VerifyFull}}), api.MigrationCompleted)
		if !d.world.Exists(srcPath) || !strings.Contains(mig.Remark, "nobody can tell") {
			t.Fatalf("the remark is %q, want that src is kept since nobody can tell", mig.Remark)
		}
		if err := d.deleteSource(mig.ID); api.CodeOf(err) != api.CodeChainChanged || api.AsError(err).Details[api.DetailWrittenUnknown] != srcPath {
			t.Errorf("%v, want a refusal that says that nobody can tell", err)
		}
		if !d.world.Exists(srcPath) {
			t.Fatal("it is gone")
		}
		_, err := d.manager().Released.Delete(ctx, uuid.NewString(), mig.ID, true)
		must(t, err)
		if d.world.Exists(srcPath) {
			t.Error("it is there still")
		}
	})
}
