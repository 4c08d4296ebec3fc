// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/led"
	"github.com/volferry/volferry/daemon/internal/migrate/monitor"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// liveVolume is the common part of all calls of the move.
func liveVolume() api.LiveVolume {
	s := savedSpec()
	return api.LiveVolume{
		MigrationID: testMigration, VolumeID: testVolume, VolumeName: "vol", Instances: []string{testInstance},
		Src: s.Src, Dst: s.Dst, UnitBytes: api.LiveUnitBytes(s.Src.SizeBytes),
	}
}

// liveDaemon is a daemon on a world with a guest that writes, with dst made.
func liveDaemon(t *testing.T, f func(t *testing.T, d *daemon)) {
	t.Helper()
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		_, err := d.world.CreateVolume(t.Context(), "new", savedSpec().Dst.Name, "raw", savedSpec().Dst.SizeBytes, nil)
		must(t, err)
		must(t, d.world.Images.Mark(t.Context(), dstPath, led.LiveMark(testMigration)))
		d.world.Registry.LiveRow(api.MigrationCopying)
		f(t, d)
	})
}

// live makes a call, twice, and waits for the end of its op.
func (d *daemon) live(id string, in any) op.Status {
	d.t.Helper()
	for range 2 { // the same call again is the same op
		must(d.t, d.manager().Parts.Live(context.Background(), id, in))
	}
	st, err := d.manager().runner.Wait(context.Background(), id)
	must(d.t, err)
	return st
}

// mustLive is live for an op that must succeed.
func (d *daemon) mustLive(id string, in any) *api.LiveOutcome {
	d.t.Helper()
	st := d.live(id, in)
	if st.State != op.StateDone {
		d.t.Fatalf("op %s is %s: %+v", id, st.State, st.Failure)
	}
	return plans.LiveOutcome(&st)
}

func (d *daemon) same() {
	d.t.Helper()
	src, err := d.world.ReadImage(savedSpec().Src.Path)
	must(d.t, err)
	dst, err := d.world.ReadImage(dstPath)
	must(d.t, err)
	if fmt.Sprint(src) != fmt.Sprint(dst) {
		d.t.Errorf("dst is %v, and src is %v", dst, src)
	}
}

func TestARoundAfterTheOtherMakesDstEqualToSrc(t *testing.T) {
	liveDaemon(t, func(t *testing.T, d *daemon) {
		v := liveVolume()
		d.mustLive("M.track", api.LiveTrack{LiveVolume: v, Generation: 1})
		whole := d.mustLive("M.round.0", api.LiveRound{LiveVolume: v, Generation: 1, UntilBytes: v.Src.SizeBytes})
		if whole.CopiedBytes != v.Src.SizeBytes {
			t.Errorf("round 0 has copied %d bytes", whole.CopiedBytes)
		}
		for round := 1; round < 4; round++ {
			d.world.GuestWrites()
			d.mustLive(fmt.Sprint("M.swap.", round), api.LiveSwap{LiveVolume: v, Generation: 1, Round: round})
			out := d.mustLive(fmt.Sprint("M.round.", round), api.LiveRound{LiveVolume: v, Generation: 1, Round: round})
			if out.CopiedBytes == 0 {
				t.Errorf("round %d has copied nothing", round)
			}
		}
		d.world.GuestWrites()
		must(t, d.world.Suspend(t.Context(), testInstance))
		d.world.Registry.LiveRow(api.MigrationCompleting)
		read := d.mustLive("M.read", api.LiveLastRead{LiveVolume: v, Generation: 1})
		last := d.mustLive("M.last", api.LiveLastCopy{LiveVolume: v, Generation: 1})
		if read.DirtyBytes == 0 || last.CopiedBytes != read.DirtyBytes {
			t.Errorf("%d bytes were read as written, and %d were copied", read.DirtyBytes, last.CopiedBytes)
		}
		d.same()
		d.mustLive("M.untrack", api.LiveUntrack{LiveVolume: v})
		left, err := d.world.Tracking(t.Context(), testInstance, "vda")
		must(t, err)
		if guards := d.world.Guards.Guarded(); len(left)+len(guards)+len(d.world.Copier.Kept) > 0 {
			t.Errorf("left: bitmaps %v, guards %v, kept %v", left, guards, d.world.Copier.Kept)
		}
		if st := d.live("M.late", api.LiveTrack{LiveVolume: v, Generation: 2}); st.State != op.StateUndone {
			t.Errorf("a call after untrack is %s", st.State)
		}
		must(t, d.world.Resume(t.Context(), testInstance))
	})
}

func TestAGenerationThatEndsIsFollowedByAWholeCopy(t *testing.T) {
	liveDaemon(t, func(t *testing.T, d *daemon) {
		v := liveVolume()
		d.mustLive("M.track.1", api.LiveTrack{LiveVolume: v, Generation: 1})
		d.mustLive("M.round.1.0", api.LiveRound{LiveVolume: v, Generation: 1, UntilBytes: v.Src.SizeBytes})
		must(t, d.world.Destroy(testInstance))
		must(t, d.world.Start(testInstance))
		if st := d.live("M.swap.1.1", api.LiveSwap{LiveVolume: v, Generation: 1, Round: 1}); st.Failure == nil || st.Failure.Code != string(api.CodeBitmapLost) {
			t.Fatalf("the swap is %s: %+v, want bitmap_lost", st.State, st.Failure)
		}
		d.mustLive("M.end.1", api.LiveEndRound{LiveVolume: v, Generation: 1})
		d.mustLive("M.track.2", api.LiveTrack{LiveVolume: v, Generation: 2})
		out := d.mustLive("M.round.2.0", api.LiveRound{LiveVolume: v, Generation: 2, UntilBytes: v.Src.SizeBytes})
		if out.CopiedBytes != v.Src.SizeBytes {
			t.Errorf("the next generation has copied %d bytes", out.CopiedBytes)
		}
		if st := d.live("M.round.1.0.2", api.LiveRound{LiveVolume: v, Generation: 1}); st.State != op.StateUndone {
			t.Errorf("a late round of the generation before is %s", st.State)
		}
		d.world.Registry.LiveRow(api.MigrationCancelling)
		d.mustLive("M.untrack", api.LiveUntrack{LiveVolume: v})
	})
}

func TestACallThatMakesNoSenseIsRefusedBeforeItBecomesAnOp(t *testing.T) {
	liveDaemon(t, func(t *testing.T, d *daemon) {
		good := liveVolume()
		for name, tc := range map[string]struct {
			edit func(*api.LiveVolume)
			want api.Code
		}{
			"no id":           {func(v *api.LiveVolume) { v.MigrationID = "x" }, api.CodeInvalidArgument},
			"qcow2":           {func(v *api.LiveVolume) { v.Src.Format = api.FormatQcow2 }, api.CodeUnsupportedDisk},
			"another size":    {func(v *api.LiveVolume) { v.Dst.SizeBytes++ }, api.CodeInvalidArgument},
			"another unit":    {func(v *api.LiveVolume) { v.UnitBytes *= 2 }, api.CodeInvalidArgument},
			"not attached":    {func(v *api.LiveVolume) { v.Instances = []string{testVolume} }, api.CodeConflict},
			"no place of dst": {func(v *api.LiveVolume) { v.Dst.Path = "" }, api.CodeInvalidArgument},
		} {
			v := good
			tc.edit(&v)
			if err := d.manager().Parts.Live(t.Context(), "M."+name, api.LiveTrack{LiveVolume: v, Generation: 1}); api.CodeOf(err) != tc.want {
				t.Errorf("%s: %v, want %s", name, err, tc.want)
			}
		}
		for name, in := range map[string]any{
			"no generation":      api.LiveTrack{LiveVolume: good},
			"swap for round 0":   api.LiveSwap{LiveVolume: good, Generation: 1},
			"part of a unit":     api.LiveRound{LiveVolume: good, Generation: 1, UntilBytes: hvtest.BlockSize},
			"share of a round":   api.LiveRound{LiveVolume: good, Generation: 1, Round: 1, UntilBytes: good.Src.SizeBytes},
			"negative bandwidth": api.LiveRound{LiveVolume: good, Generation: 1, CopyOptions: api.CopyOptions{BandwidthBytesPerSecond: -1}},
		} {
			if err := d.manager().Parts.Live(t.Context(), "M."+name, in); api.CodeOf(err) != api.CodeInvalidArgument {
				t.Errorf("%s: %v, want %s", name, err, api.CodeInvalidArgument)
			}
		}
		if ops, err := d.manager().History.Journal.Group(t.Context(), move.LiveGroup(testMigration)); err != nil || len(ops) > 0 {
			t.Errorf("there are %d ops (%v)", len(ops), err)
		}
	})
}

// toMake is a daemon on a world with a guest that writes, before dst is made.
func toMake(t *testing.T, f func(t *testing.T, d *daemon, v api.LiveVolume)) {
	t.Helper()
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		v := liveVolume()
		v.Dst = api.Location{Pool: "new", Name: savedSpec().Dst.Name, Format: api.FormatRaw, SizeBytes: v.Src.SizeBytes}
		d.world.Registry.LiveRow(api.MigrationStarting)
		f(t, d, v)
	})
}

// make makes dst, and returns its location.
func (d *daemon) make(v api.LiveVolume) api.Location {
	d.t.Helper()
	for range 2 {
		must(d.t, d.manager().Parts.MakeLive(context.Background(), "M.make", api.LiveMake{LiveVolume: v}))
	}
	st, err := d.manager().runner.Wait(context.Background(), "M.make")
	must(d.t, err)
	asked, err := d.manager().Request(context.Background(), "M.make")
	must(d.t, err)
	made := asked.Location
	if st.State != op.StateDone || made == nil {
		d.t.Fatalf("the op is %s: %+v, and dst at %v", st.State, st.Failure, made)
	}
	return *made
}

// drop removes src or dst, and returns the result.
func (d *daemon) drop(id, what string, at api.Location) (op.Status, error) {
	d.t.Helper()
	err := d.manager().Parts.DropSaved(context.Background(), id, api.DropSaved{MigrationID: testMigration, VolumeID: testVolume, Drop: what, Location: at})
	if err != nil {
		return op.Status{}, err
	}
	st, err := d.manager().runner.Wait(context.Background(), id)
	must(d.t, err)
	return st, nil
}

func TestADestinationIsMadeEmptyAndDroppedOnceNobodyIsFollowed(t *testing.T) {
	toMake(t, func(t *testing.T, d *daemon, v api.LiveVolume) {
		made := d.make(v)
		if made.Path != dstPath {
			t.Fatalf("dst is at %+v", made)
		}
		v.Dst = made
		d.world.Registry.LiveRow(api.MigrationCopying)
		d.mustLive("M.track", api.LiveTrack{LiveVolume: v, Generation: 1})
		d.world.Registry.LiveRow(api.MigrationCancelling)
		if _, err := d.drop("M.drop", api.DropDst, made); api.CodeOf(err) != api.CodeStateForbidden {
			t.Errorf("dst is dropped while guests are followed: %v", err)
		}
		d.mustLive("M.untrack", api.LiveUntrack{LiveVolume: v})
		if st, err := d.drop("M.drop.2", api.DropDst, made); err != nil || st.State != op.StateDone {
			t.Errorf("the drop is %s (%v): %+v", st.State, err, st.Failure)
		}
		if d.world.Exists(dstPath) || !d.world.Exists(srcPath) {
			t.Error("dst is left, or src is gone")
		}
	})
}

func TestADropWithoutADestinationIsDone(t *testing.T) {
	toMake(t, func(t *testing.T, d *daemon, v api.LiveVolume) {
		d.world.Registry.LiveRow(api.MigrationCancelling)
		if st, err := d.drop("M.drop", api.DropDst, v.Dst); err != nil || st.State != op.StateDone {
			t.Errorf("the drop is %s (%v): %+v", st.State, err, st.Failure)
		}
		if err := d.manager().Parts.MakeLive(t.Context(), "M.make", api.LiveMake{LiveVolume: v}); api.CodeOf(err) != api.CodeStateForbidden {
			t.Errorf("dst is made after it was dropped: %v", err)
		}
	})
}

func TestASourceIsDeletedOnlyAfterTheLastCopy(t *testing.T) {
	toMake(t, func(t *testing.T, d *daemon, v api.LiveVolume) {
		v.Dst = d.make(v)
		d.world.Registry.LiveRow(api.MigrationCopying)
		d.mustLive("M.track", api.LiveTrack{LiveVolume: v, Generation: 1})
		d.mustLive("M.round.0", api.LiveRound{LiveVolume: v, Generation: 1, UntilBytes: v.Src.SizeBytes})
		if _, err := d.drop("M.delete", api.DropSrc, v.Src); api.CodeOf(err) != api.CodeStateForbidden {
			t.Errorf("src is deleted before the last copy: %v", err)
		}
		d.world.Registry.LiveRow(api.MigrationCancelling)
		d.mustLive("M.untrack", api.LiveUntrack{LiveVolume: v})
	})
}

// The registry has ended the move without this host, or was restored from a backup.
func TestGuestsOfAMoveThatTheRegistryHasEndedAreFollowedNoMore(t *testing.T) {
	for name, gone := range map[string]func(*daemon){
		"cancelled": func(d *daemon) { d.world.Registry.LiveRow(api.MigrationCancelled) },
		"not known": func(d *daemon) { d.world.Registry.NoRow() },
	} {
		t.Run(name, func(t *testing.T) {
			liveDaemon(t, func(t *testing.T, d *daemon) {
				v := liveVolume()
				d.mustLive("M.track", api.LiveTrack{LiveVolume: v, Generation: 1})
				must(t, d.manager().Parts.UntrackUnwanted(t.Context()))
				left, err := d.world.Tracking(t.Context(), testInstance, "vda")
				must(t, err)
				if len(left) != 1 {
					t.Fatalf("the guest of a move that is open has bitmaps %v", left)
				}
				gone(d)
				d.Restart()
				for range 2 { // and once more, when it has ended
					must(t, d.manager().Parts.UntrackUnwanted(t.Context()))
					synctest.Wait()
				}
				left, err = d.world.Tracking(t.Context(), testInstance, "vda")
				must(t, err)
				if len(left) > 0 {
					t.Errorf("bitmaps are left: %v", left)
				}
			})
		})
	}
}

// Rule R7: a write after the suspend is in no copy, and only the process, which is about to end,
// knows of it.
func TestAGuestThatWroteAfterTheLastReadIsNotSaved(t *testing.T) {
	liveDaemon(t, func(t *testing.T, d *daemon) {
		v := liveVolume()
		still := func() error { return d.manager().Parts.StoodStill(t.Context(), testMigration, testInstance) }
		must(t, still()) // a move of another kind
		d.mustLive("M.track", api.LiveTrack{LiveVolume: v, Generation: 1})
		d.mustLive("M.round.0", api.LiveRound{LiveVolume: v, Generation: 1, UntilBytes: v.Src.SizeBytes})
		must(t, d.world.Suspend(t.Context(), testInstance))
		d.world.Registry.LiveRow(api.MigrationCompleting)
		if err := still(); api.CodeOf(err) != api.CodeStateForbidden {
			t.Errorf("before the last read: %v", err)
		}
		d.mustLive("M.read", api.LiveLastRead{LiveVolume: v, Generation: 1})
		must(t, still())
		must(t, d.world.Resume(t.Context(), testInstance))
		d.world.GuestWrites()
		must(t, d.world.Suspend(t.Context(), testInstance))
		if err := still(); api.CodeOf(err) != api.CodeStateForbidden || api.AsError(err).Details["ran_on"] != true {
			t.Errorf("after a write: %v", err)
		}
		d.world.Registry.LiveRow(api.MigrationCancelling)
		d.mustLive("M.untrack", api.LiveUntrack{LiveVolume: v})
		must(t, d.world.Resume(t.Context(), testInstance))
	})
}

func TestAMoveThatCouldNotBeFollowedIsRefusedBeforeAnythingIsDone(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*testing.T, *daemon, *api.LiveVolume)
		want api.Code
	}{
		"as it may be": {func(*testing.T, *daemon, *api.LiveVolume) {}, ""},
		"off":          {func(t *testing.T, d *daemon, _ *api.LiveVolume) { must(t, d.world.Destroy(testInstance)) }, ""},
		"qcow2":        {func(_ *testing.T, _ *daemon, v *api.LiveVolume) { v.Dst.Format = api.FormatQcow2 }, api.CodeUnsupportedDisk},
		"an old QEMU": {func(t *testing.T, d *daemon, _ *api.LiveVolume) {
			must(t, d.world.Destroy(testInstance))
			d.world.SetAbout(hv.About{QEMU: hv.Version{Major: 5, Minor: 2}})
			must(t, d.world.Start(testInstance))
		}, api.CodeUnsupportedDisk},
		"a page cache that another host does not see": {func(_ *testing.T, d *daemon, _ *api.LiveVolume) {
			d.world.Registry.Vol.Attachments = append(d.world.Registry.Vol.Attachments, api.Attachment{ID: testVolume, InstanceID: testVolume, Host: "other"})
		}, api.CodeUnsupportedDisk},
		"a transient disk": {func(t *testing.T, d *daemon, _ *api.LiveVolume) {
			must(t, d.world.Destroy(testInstance))
			d.world.Redefine(t, func(dom *hv.Domain) { dom.Config[0].Transient = true })
		}, api.CodeUnsupportedDisk},
		"a setting that a move would lose": {func(t *testing.T, d *daemon, _ *api.LiveVolume) {
			must(t, d.world.Destroy(testInstance))
			d.world.Redefine(t, func(dom *hv.Domain) { dom.Config[0].Uncarried = "<reservations> in its <source>" })
		}, api.CodeUnsupportedDisk},
		"no export": {func(_ *testing.T, d *daemon, _ *api.LiveVolume) {
			d.world.Inject(hvtest.Fault{Call: "CanTrack", Err: hv.ErrBusy})
		}, api.CodeInstanceBusy},
		"refused by a profile": {func(_ *testing.T, d *daemon, _ *api.LiveVolume) {
			d.world.Inject(hvtest.Fault{Call: "CanTrack", Err: errors.New("permission denied")})
		}, api.CodeUnsupportedDisk},
	} {
		t.Run(name, func(t *testing.T) {
			toMake(t, func(t *testing.T, d *daemon, v api.LiveVolume) {
				tc.edit(t, d, &v)
				if err := d.manager().Preflight.CheckLive(t.Context(), api.LiveCheck{LiveVolume: v}); api.CodeOf(err) != tc.want {
					t.Errorf("%v, want %q", err, tc.want)
				}
			})
		})
	}
}

// Limited guests have their earlier limits again when they are paused, when the generation ends,
// and when they are untracked, also if the daemon died in between.
func TestALimitOnWritesIsTakenOffHoweverTheMoveGoesOn(t *testing.T) {
	const (
		owners = 3 << 20
		ours   = 1 << 20
	)
	for name, tc := range map[string]struct {
		before, byHand, want int64
		end                  func(d *daemon, v api.LiveVolume)
	}{
		"last read": {before: owners, want: owners, end: func(d *daemon, v api.LiveVolume) {
			must(d.t, d.world.Suspend(d.t.Context(), testInstance))
			d.world.Registry.LiveRow(api.MigrationCompleting)
			d.mustLive("M.read", api.LiveLastRead{LiveVolume: v, Generation: 1})
			must(d.t, d.world.Resume(d.t.Context(), testInstance))
		}},
		"end": {want: 0, end: func(d *daemon, v api.LiveVolume) {
			d.mustLive("M.end", api.LiveEndRound{LiveVolume: v, Generation: 1})
		}},
		"untrack": {before: owners, want: owners, end: func(d *daemon, v api.LiveVolume) {
			d.world.Registry.LiveRow(api.MigrationCancelling)
			d.mustLive("M.untrack", api.LiveUntrack{LiveVolume: v})
		}},
		"a lower one of the owner": {before: ours / 2, want: ours / 2, end: func(d *daemon, v api.LiveVolume) {
			d.mustLive("M.end", api.LiveEndRound{LiveVolume: v, Generation: 1})
		}},
		"somebody has changed it": {before: owners, byHand: 7, want: 7, end: func(d *daemon, v api.LiveVolume) {
			d.mustLive("M.end", api.LiveEndRound{LiveVolume: v, Generation: 1})
		}},
		"the registry forgot it": {want: 0, end: func(d *daemon, _ api.LiveVolume) {
			d.world.Registry.LiveRow(api.MigrationCancelled)
			must(d.t, d.manager().Parts.UntrackUnwanted(d.t.Context()))
			synctest.Wait()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			liveDaemon(t, func(t *testing.T, d *daemon) {
				v := liveVolume()
				must(t, d.world.PutWriteLimit(t.Context(), testInstance, "vda", tc.before))
				d.mustLive("M.track", api.LiveTrack{LiveVolume: v, Generation: 1})
				d.mustLive("M.round.0", api.LiveRound{LiveVolume: v, Generation: 1, UntilBytes: v.Src.SizeBytes})
				for round, limit := range []int64{2 * ours, ours} {
					d.mustLive(fmt.Sprint("M.swap.", round), api.LiveSwap{LiveVolume: v, Generation: 1, Round: round + 1})
					d.mustLive(fmt.Sprint("M.round.", round+1), api.LiveRound{LiveVolume: v, Generation: 1, Round: round + 1, WriteBytesPerSecond: limit})
					want := limit
					if tc.before > 0 {
						want = min(limit, tc.before)
					}
					if got := d.world.WriteLimit(testInstance, "vda"); got != want {
						t.Errorf("in round %d the limit is %d, want %d", round+1, got, want)
					}
				}
				d.world.Copier.Mu.Lock()
				clear(d.world.Copier.Kept)
				d.world.Copier.Mu.Unlock()
				if tc.byHand > 0 {
					must(t, d.world.PutWriteLimit(t.Context(), testInstance, "vda", tc.byHand))
				}
				tc.end(d, v)
				if got := d.world.WriteLimit(testInstance, "vda"); got != tc.want {
					t.Errorf("the limit is %d, want %d", got, tc.want)
				}
				must(t, d.world.PutWriteLimit(t.Context(), testInstance, "vda", 0))
				d.world.Registry.LiveRow(api.MigrationCancelling)
				d.mustLive("M.untrack.2", api.LiveUntrack{LiveVolume: v})
			})
		})
	}
}

func TestARoundThatSlowsTheDisksOfAThrottleGroupNamesThem(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		must(t, d.world.CreateImage("/old/logs.raw", hvtest.Raw, testSize))
		d.world.Redefine(t, func(dom *hv.Domain) {
			dom.Config[0].ThrottleGroup = "both"
			dom.Config = append(dom.Config, hv.Disk{Target: "vdb", Device: "disk", Chain: []hv.Image{rawImage("/old/logs.raw")}, Terminated: true, ThrottleGroup: "both"})
		})
		must(t, d.world.Start(testInstance))
		v := d.followed(t)
		for round, limit := range []int64{0, 1 << 20} {
			d.mustLive(fmt.Sprint("M.swap.", round), api.LiveSwap{LiveVolume: v, Generation: 1, Round: round + 1})
			id := fmt.Sprint("M.round.", round+1)
			out := d.mustLive(id, api.LiveRound{LiveVolume: v, Generation: 1, Round: round + 1, WriteBytesPerSecond: limit})
			o, err := d.manager().Request(t.Context(), id)
			must(t, err)
			if out.DirtySeconds < 0 || strings.Contains(o.Remark, "throttle group, so it holds back vdb too") != (limit > 0) {
				t.Errorf("with a limit of %d the round remarks %q", limit, o.Remark)
			}
		}
	})
}

// followed makes dst, tracks the writes to src, and copies src.
func (d *daemon) followed(t *testing.T) api.LiveVolume {
	t.Helper()
	d.world.Registry.LiveRow(api.MigrationStarting)
	v := liveVolume()
	v.Dst = api.Location{Pool: "new", Name: savedSpec().Dst.Name, Format: api.FormatRaw, SizeBytes: v.Src.SizeBytes}
	v.Dst = d.make(v)
	d.world.Registry.LiveRow(api.MigrationCopying)
	d.mustLive("M.track", api.LiveTrack{LiveVolume: v, Generation: 1})
	d.mustLive("M.round.0", api.LiveRound{LiveVolume: v, Generation: 1, UntilBytes: v.Src.SizeBytes})
	return v
}

func TestATaintedGuestIsNamedForAsLongAsItsProcessLives(t *testing.T) {
	liveDaemon(t, func(t *testing.T, d *daemon) {
		v := liveVolume()
		tainted := func() []monitor.TaintedGuest {
			t.Helper()
			all, err := d.manager().Monitor.TaintedGuests(t.Context())
			must(t, err)
			return all
		}
		if got := tainted(); len(got) > 0 {
			t.Errorf("before the move: %+v", got)
		}
		d.mustLive("M.track", api.LiveTrack{LiveVolume: v, Generation: 1})
		d.world.Registry.LiveRow(api.MigrationCancelling)
		d.mustLive("M.untrack", api.LiveUntrack{LiveVolume: v})
		if got := tainted(); len(got) != 1 || got[0].MigrationID != testMigration || got[0].VolumeName != "vol" {
			t.Errorf("after the move: %+v", got)
		}
		must(t, d.world.Destroy(testInstance))
		if got := tainted(); len(got) > 0 {
			t.Errorf("the guest is off: %+v", got)
		}
		must(t, d.world.Start(testInstance))
		if got := tainted(); len(got) > 0 {
			t.Errorf("in another process: %+v", got)
		}
	})
}
