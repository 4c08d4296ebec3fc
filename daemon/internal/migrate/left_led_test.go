// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// ledMoves are the moves that the registry leads, until the volume is at dst, on the host that has
// copied, each with the call to delete src.
var ledMoves = map[string]func(t *testing.T, before func(*daemon), f func(*testing.T, *daemon, api.DropSaved)){
	"with all guests paused": func(t *testing.T, before func(*daemon), f func(*testing.T, *daemon, api.DropSaved)) {
		t.Helper()
		savedDaemon(t, func(t *testing.T, d *daemon) {
			before(d)
			d.copiesSaved(t)
			spec := savedSpec()
			f(t, d, dropSaved(api.DropSrc, &spec))
		})
	},
	"while all guests write": func(t *testing.T, before func(*daemon), f func(*testing.T, *daemon, api.DropSaved)) {
		t.Helper()
		toMake(t, func(t *testing.T, d *daemon, v api.LiveVolume) {
			before(d)
			v.Dst = d.make(v)
			d.world.Registry.LiveRow(api.MigrationCopying)
			d.mustLive("M.track", api.LiveTrack{LiveVolume: v, Generation: 1})
			d.mustLive("M.round.0", api.LiveRound{LiveVolume: v, Generation: 1, UntilBytes: v.Src.SizeBytes})
			d.world.GuestWrites()
			must(t, d.world.Suspend(t.Context(), testInstance))
			d.world.Registry.LiveRow(api.MigrationCompleting)
			d.mustLive("M.read", api.LiveLastRead{LiveVolume: v, Generation: 1})
			d.mustLive("M.last", api.LiveLastCopy{LiveVolume: v, Generation: 1})
			d.mustLive("M.untrack", api.LiveUntrack{LiveVolume: v})
			must(t, d.world.Destroy(testInstance)) // its memory is saved
			spec := savedSpec()
			f(t, d, dropSaved(api.DropSrc, &spec))
		})
	},
}

// drops ends the move as the registry does: the volume is at dst, the definition names it, and src
// is to be deleted. It returns the host's remark.
func (d *daemon) drops(t *testing.T, in api.DropSaved) string {
	t.Helper()
	spec := savedSpec()
	must(t, d.world.SetConfigChain(t.Context(), testInstance, "vda", spec.DstChain()))
	method := d.world.Registry.Rows[testMigration].Method
	d.world.Registry.Flip()
	d.world.Registry.With(func() {
		row := d.world.Registry.Rows[testMigration]
		row.Method = method
		d.world.Registry.Rows[testMigration] = row
	})
	must(t, d.manager().Parts.DropSaved(t.Context(), savedDrop, in))
	o := d.untilOp(savedDrop)
	if o.State != string(op.StateDone) {
		t.Errorf("the op is %+v", o)
	}
	return o.Remark
}

// A domain that the registry does not know was started on src, after the last byte was copied.
func TestASourceThatIsWrittenBehindALedMoveIsNotDropped(t *testing.T) {
	for name, move := range ledMoves {
		t.Run(name, func(t *testing.T) {
			move(t, func(*daemon) {}, func(t *testing.T, d *daemon, drop api.DropSaved) {
				must(t, d.world.WriteBlock(srcPath, 3, 1<<41))
				if remark := d.drops(t, drop); !d.world.Exists(srcPath) || !strings.Contains(remark, "was written since") {
					t.Errorf("src is there: %t, and the remark is %q", d.world.Exists(srcPath), remark)
				}
				d.keepsReleased(t, func(r *api.ReleasedSource) bool { return r.Written })
			})
		})
	}
}

func TestASourceThatNobodyWritesBehindALedMoveIsDropped(t *testing.T) {
	for name, move := range ledMoves {
		t.Run(name, func(t *testing.T) {
			move(t, func(*daemon) {}, func(t *testing.T, d *daemon, drop api.DropSaved) {
				if remark := d.drops(t, drop); d.world.Exists(srcPath) || remark != "" {
					t.Errorf("src is there: %t, and the remark is %q", d.world.Exists(srcPath), remark)
				}
			})
		})
	}
}

// Another host may have written to it, which the counters of this one do not show.
func TestASourceOfALedMoveThatIsADeviceIsNotDropped(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		d.world.Images.Devices = map[string]bool{srcPath: true}
		d.copiesSaved(t)
		s := savedSpec()
		if remark := d.drops(t, dropSaved(api.DropSrc, &s)); !d.world.Exists(srcPath) || !strings.Contains(remark, "other hosts") {
			t.Errorf("src is there: %t, and the remark is %q", d.world.Exists(srcPath), remark)
		}
	})
}

// Without the last stamp it is unknown whether src was written.
func TestASourceOfALedMoveThatHasNoStampIsNotDropped(t *testing.T) {
	for name, move := range ledMoves {
		t.Run(name, func(t *testing.T) {
			move(t, func(d *daemon) {
				d.journal.AfterAppend(func(r op.Record) {
					if r.Kind == op.EventStarted && (r.Step == "still_closed" || r.Step == "copy_last") {
						d.world.Images.Unreadable = srcPath
					}
				})
			}, func(t *testing.T, d *daemon, drop api.DropSaved) {
				d.journal.AfterAppend(nil)
				d.world.Images.Unreadable = ""
				if remark := d.drops(t, drop); !d.world.Exists(srcPath) || !strings.Contains(remark, "nobody can tell") {
					t.Errorf("src is there: %t, and the remark is %q", d.world.Exists(srcPath), remark)
				}
				d.keepsReleased(t, func(r *api.ReleasedSource) bool { return r.WrittenUnknown != "" })
			})
		})
	}
}

// keepsReleased checks that src is a released source that is not deleted without --force.
func (d *daemon) keepsReleased(t *testing.T, is func(*api.ReleasedSource) bool) {
	t.Helper()
	d.endsLed()
	if all := d.released(); len(all) != 1 || !is(&all[0]) {
		t.Errorf("released are %+v", all)
	}
	if err := d.deleteSource(testMigration); api.CodeOf(err) != api.CodeChainChanged || !d.world.Exists(srcPath) {
		t.Errorf("delete-source: %v, and src is there: %t", err, d.world.Exists(srcPath))
	}
}

// Other hosts may write to a device, and it cannot be removed: the operator confirms that it may be
// overwritten.
func TestADeviceThatALedMoveHasLeftIsTheDestinationOfAnotherIfThatIsAskedFor(t *testing.T) {
	for name, back := range map[string]func(d *daemon, in api.CopySaved) error{
		"with all guests paused, the copying host": func(d *daemon, in api.CopySaved) error {
			_, err := d.manager().Parts.CheckCopySaved(d.t.Context(), in)
			return err
		},
		"with all guests paused, the copy": func(d *daemon, in api.CopySaved) error {
			err := d.manager().Parts.CopySaved(d.t.Context(), uuid.NewString(), in)
			return err
		},
		"while all guests write": func(d *daemon, in api.CopySaved) error {
			v := liveVolume()
			v.MigrationID, v.Src, v.Dst = in.MigrationID, in.Src, in.Dst
			return d.manager().Parts.MakeLive(d.t.Context(), uuid.NewString(), api.LiveMake{LiveVolume: v, Overwrite: in.Overwrite})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
				in := d.leavesDeviceLed(t)
				if err := back(d, in); api.CodeOf(err) != api.CodeDstInUse || !strings.Contains(err.Error(), "other hosts") || !strings.Contains(err.Error(), "--yes") {
					t.Errorf("unasked: %v, want dst_in_use with --yes", err)
				}
				in.Overwrite = true
				must(t, back(d, in))
			})
		})
	}
}

// leavesDeviceLed makes the volume leave a device by a move that the registry leads, and returns
// the call that moves it back.
func (d *daemon) leavesDeviceLed(t *testing.T) api.CopySaved {
	t.Helper()
	in := copySaved()
	in.Src.Path = filepath.Join(t.TempDir(), "lun")
	d.until(d.migrateTo(api.MigrationTarget{ToPath: in.Src.Path}), api.MigrationCompleted)
	d.world.Images.Devices = map[string]bool{in.Src.Path: true}
	must(t, os.WriteFile(in.Src.Path, nil, 0o600))
	d.world.Registry.SavedRow(api.MigrationCopying)
	err := d.manager().Parts.CopySaved(t.Context(), savedCopy, in)
	must(t, err)
	d.untilOp(savedCopy)
	spec := savedSpec()
	d.world.Registry.Flip()
	must(t, d.world.SetConfigChain(t.Context(), testInstance, "vda", spec.DstChain()))
	d.endsLed()
	in.MigrationID = uuid.NewString()
	in.Src, in.Dst = spec.Dst, api.Location{Path: in.Src.Path, Format: api.FormatRaw, SizeBytes: in.Src.SizeBytes}
	return in
}

// endsLed makes the registry know the led move as completed.
func (d *daemon) endsLed() {
	d.world.Registry.With(func() {
		row := d.world.Registry.Rows[testMigration]
		ended := time.Now()
		row.State, row.FinishedAt = api.MigrationCompleted, &ended
		d.world.Registry.Rows[testMigration] = row
	})
}
