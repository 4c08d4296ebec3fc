// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// The registry's database is restored from a backup from before a move. The journal of the host has
// the volume at dst, with all later writes of the guest.

// forgetsMove moves the volume, has the guest write and shuts it down, and replaces the registry by
// a registry that does not know the move.
func (d *daemon) forgetsMove(t *testing.T) api.Migration {
	t.Helper()
	before := d.world.Registry.CurrentVolume()
	mig := d.until(d.migrate(), api.MigrationCompleted)
	d.world.GuestWrites()
	must(t, d.world.Stop(testInstance))
	d.world.Registry.Vol = before
	delete(d.world.Registry.Rows, mig.ID)
	return mig
}

// saysWhichIsWhich checks that an error or an explanation names each witness, and the right way.
func saysWhichIsWhich(t *testing.T, text string, mig *api.Migration) {
	t.Helper()
	for _, word := range []string{
		"the registry has volume", mig.Src.Path, "the journal of this host has it at " + mig.Dst.Path, mig.ID, "the definition of instance web names",
		"lose-a-host.md (The registry is lost)", "volferryctl instance forget web --force", "volferryctl instance adopt web",
	} {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
	for _, word := range []string{"instance repair", "catches up"} {
		if strings.Contains(text, word) {
			t.Errorf("%q says %q", text, word)
		}
	}
}

func TestAMoveThatTheRegistryDoesNotKnowKeepsItsInstanceFromStart(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		mig := d.forgetsMove(t)
		for name, define := range map[string]func(){
			"the definition names dst": func() {},
			"it names src":             func() { d.defineOn(t, rawImage(mig.Src.Path)) },
		} {
			define()
			for call, err := range map[string]error{
				"start": d.manager().Monitor.MayStart(ctx, testInstance), "repair": d.manager().Which.CheckRecorded(ctx, testInstance),
			} {
				if api.CodeOf(err) != api.CodeChainChanged {
					t.Fatalf("%s, %s: %v, want chain_changed", name, call, err)
				}
				saysWhichIsWhich(t, err.Error(), &mig)
			}
			w := d.which()
			saysWhichIsWhich(t, w.Explanation, &mig)
			if w.Agree || w.Authoritative != nil && w.Authoritative[0].Path != mig.Dst.Path {
				t.Errorf("%s: which says agree %t, authoritative %+v", name, w.Agree, w.Authoritative)
			}
		}
	})
}

func TestAGuestOnTheSourceOfAMoveThatTheRegistryDoesNotKnowIsSaid(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.forgetsMove(t)
		d.defineOn(t, rawImage(mig.Src.Path))
		must(t, d.world.Start(testInstance)) // as virsh does
		got := d.writtenSources()
		if len(got) != 1 || !strings.Contains(got[0], "runs on "+mig.Src.Path) || !strings.Contains(got[0], mig.Dst.Path) || !strings.Contains(got[0], "the registry does not know it") {
			t.Errorf("written sources are %q", got)
		}
		all, err := d.manager().Released.List(context.Background(), "")
		must(t, err)
		if len(all) != 1 || !all[0].Unrecorded || all[0].VolumePath != mig.Dst.Path || all[0].Blocked == "" || strings.Contains(all[0].WayOut(), "rm ") {
			t.Errorf("released are %+v", all)
		}
		if w := d.which(); w.Authoritative != nil || !strings.Contains(w.Explanation, "each may hold what the other lacks") {
			t.Errorf("which says %+v: %s", w.Authoritative, w.Explanation)
		}
	})
}

// An operator who abandons a move decides for the registry's place.
func TestAnAbandonedMoveIsNoContradiction(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.forgetsMove(t)
		mig.State = api.MigrationError
		d.world.Registry.Rows[mig.ID] = mig
		must(t, d.manager().Monitor.MayStart(context.Background(), testInstance))
	})
}

func TestWithoutTheRegistryAMoveIsNoContradiction(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.until(d.migrate(), api.MigrationCompleted)
		must(t, d.world.Stop(testInstance))
		must(t, d.manager().Monitor.MayStart(context.Background(), testInstance))
		d.world.Registry.SetDown(true)
		must(t, d.manager().Monitor.MayStart(context.Background(), testInstance))
	})
}

// A host that has moved the volume elsewhere takes no part in a move of the registry's image.
func TestAMoveThatTheRegistryDoesNotKnowKeepsItsVolumeFromFurtherMoves(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		mig := d.forgetsMove(t)
		d.defineOn(t, rawImage(mig.Src.Path)) // as before that move
		vol := d.world.Registry.CurrentVolume()
		live := liveVolume()
		for name, call := range map[string]func() error{
			"of one guest": func() error { _, err := d.manager().Plan(ctx, testVolume, toNewPool); return err },
			"with all guests paused, asked before": func() error {
				return d.manager().Parts.CheckPaused(ctx, vol, vol.Attachments[0], []string{testInstance})
			},
			"with all guests paused, the copying host": func() error { _, err := d.manager().Parts.CheckCopySaved(ctx, copySaved()); return err },
			"with all guests paused, the copy":         func() error { err := d.manager().Parts.CopySaved(ctx, savedCopy, copySaved()); return err },
			"while all guests write, asked before": func() error {
				return d.manager().Preflight.CheckLive(ctx, api.LiveCheck{LiveVolume: live})
			},
			"while all guests write, the destination": func() error { return d.manager().Parts.MakeLive(ctx, "M.make", api.LiveMake{LiveVolume: live}) },
			"while all guests write": func() error {
				return d.manager().Parts.Live(ctx, "M.track", api.LiveTrack{LiveVolume: live, Generation: 1})
			},
		} {
			err := call()
			if api.CodeOf(err) != api.CodeChainChanged {
				t.Errorf("%s: %v, want chain_changed", name, err)
				continue
			}
			saysWhichIsWhich(t, err.Error(), &mig)
		}
	})
}

// doctor names it before any guest is started.
func TestEachVolumeThatRegistryAndJournalHaveAtTwoPlacesIsNamed(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		none, err := d.manager().Which.Contradictions(t.Context())
		must(t, err)
		mig := d.forgetsMove(t)
		found, err := d.manager().Which.Contradictions(t.Context())
		must(t, err)
		if len(none) > 0 || len(found) != 1 || found[0].Volume.ID != testVolume {
			t.Fatalf("before the backup was taken back: %+v, then: %+v, want the volume then", none, found)
		}
		saysWhichIsWhich(t, found[0].Witnesses+"; "+found[0].WayOut, &mig)
		mig.State = api.MigrationCompleted
		d.world.Registry.Rows[mig.ID], d.world.Registry.Vol.Location = mig, mig.Dst // the operator has corrected it
		if found, err = d.manager().Which.Contradictions(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("%+v, %v, want none", found, err)
		}
	})
}

// checksWithoutRow checks whether an instance may, for example, be repaired while the registry does
// not know the move that it leads.
func (d *daemon) checksWithoutRow(t *testing.T) error {
	t.Helper()
	row := d.world.Registry.Rows[testMigration]
	delete(d.world.Registry.Rows, testMigration)
	defer func() { d.world.Registry.Rows[testMigration] = row }()
	return d.manager().Which.CheckRecorded(t.Context(), testInstance)
}

// Only the copying host knows a move with all guests paused that ended after the backup.
func TestACopyOfALedMoveThatTheRegistryDoesNotKnowKeepsItsInstanceFromRepair(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		err := d.manager().Parts.CopySaved(t.Context(), savedCopy, copySaved())
		must(t, err)
		synctest.Wait()
		must(t, d.checksWithoutRow(t)) // it has not copied everything yet
		close(d.world.Copier.Gate)
		d.untilOp(savedCopy)
		must(t, d.manager().Which.CheckRecorded(t.Context(), testInstance))
		err = d.checksWithoutRow(t)
		if api.CodeOf(err) != api.CodeChainChanged || !strings.Contains(err.Error(), "has it copied to "+dstPath) {
			t.Errorf("%v, want chain_changed", err)
		}
		if w := d.which(); !w.Agree {
			t.Errorf("with its row, which says %s", w.Explanation)
		}
		delete(d.world.Registry.Rows, testMigration)
		if w := d.which(); w.Agree || w.Authoritative != nil || !strings.Contains(w.Explanation, dstPath) {
			t.Errorf("which says agree %t, authoritative %+v: %s", w.Agree, w.Authoritative, w.Explanation)
		}
		d.world.Registry.SavedRow(api.MigrationCancelling)
		dropped := savedSpec()
		must(t, d.manager().Parts.DropSaved(t.Context(), savedDrop, dropSaved(api.DropDst, &dropped)))
		d.untilOp(savedDrop)
		must(t, d.checksWithoutRow(t))
	})
}

// The backup is from before several moves: the registry has the volume where none of the journal's
// newest move was.
func TestARegistryOfBeforeSeveralMovesContradictsTheNewestOne(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		must(t, d.manager().Parts.CopySaved(t.Context(), savedCopy, copySaved()))
		d.untilOp(savedCopy)
		r := d.world.Registry
		for _, tc := range []struct {
			path        string
			generation  int64
			contradicts bool
		}{
			{srcPath, 1, true},
			{"/older/vol.raw", 1, true},
			{"/other/vol.raw", 2, true}, // another host moved it after the backup was taken back
			{dstPath, 2, false},
			{"/newer/vol.raw", 3, false}, // another host moved it after this move
		} {
			r.Lock()
			r.Vol.Location.Path, r.Vol.Location.Pool, r.Vol.Location.Name, r.Vol.Generation = tc.path, "", "", tc.generation
			r.Unlock()
			err := d.checksWithoutRow(t)
			if contradicts := api.CodeOf(err) == api.CodeChainChanged; contradicts != tc.contradicts || err != nil && !contradicts {
				t.Errorf("the registry has it at %s in generation %d: %v, want a contradiction: %t", tc.path, tc.generation, err, tc.contradicts)
			}
			must(t, d.manager().Which.CheckRecorded(t.Context(), testInstance)) // the registry knows the move
		}
	})
}

// Another host has copied the volume: here the requests to wake the guests show where it went.
func TestALedMoveThatAnotherHostCopiedKeepsItsInstanceFromRepair(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		woken := func(kind, at string, generation int64) {
			t.Helper()
			in := memory.PauseInput{MigrationID: testMigration, VolumeID: testVolume, VolumeName: "vol", Device: "vda", Location: api.Location{Path: at}, Generation: generation}
			data, err := json.Marshal(in)
			must(t, err)
			_, err = d.journal.Create(t.Context(), op.Op{ID: kind + at + fmt.Sprint(generation), Kind: kind, Group: testInstance, Input: data, CreatedAt: time.Now()})
			must(t, err)
			pass(time.Second)
		}
		at := func(path string, generation int64) {
			r := d.world.Registry
			r.Lock()
			defer r.Unlock()
			r.Vol.Location.Path, r.Vol.Generation = path, generation
		}
		says := func(want string) {
			t.Helper()
			err := d.manager().Which.CheckRecorded(t.Context(), testInstance)
			if want == "" {
				must(t, err)
				return
			}
			if api.CodeOf(err) != api.CodeChainChanged || !strings.Contains(err.Error(), "has a guest of it at "+want+" since migration "+testMigration) {
				t.Errorf("%v, want chain_changed because of %s", err, want)
			}
			if err := d.manager().Which.CheckVolumeRecorded(t.Context(), d.world.Registry.CurrentVolume()); api.CodeOf(err) != api.CodeChainChanged {
				t.Errorf("of the volume: %v, want chain_changed", err)
			}
			if err := d.manager().Monitor.MayStart(t.Context(), testInstance); api.CodeOf(err) != api.CodeChainChanged {
				t.Errorf("start: %v, want chain_changed", err)
			}
			found, err := d.manager().Which.Contradictions(t.Context())
			if err != nil || len(found) != 1 {
				t.Errorf("contradictions: %+v, %v, want the volume", found, err)
			}
		}
		says("")
		woken(subject.KindRestorePaused, srcPath, 1) // back, since the first copy failed
		says("")
		woken(subject.KindRestorePaused, dstPath, 2)
		says(dstPath) // the registry is from before the move
		d.world.Registry.SavedRow(api.MigrationCompleted)
		says("") // it knows the move
		delete(d.world.Registry.Rows, testMigration)
		woken(subject.KindResume, dstPath, 2)
		at("/older/vol.raw", 1)
		says(dstPath)
		at(dstPath, 2)
		says("")
		at("/newer/vol.raw", 3) // moved without a guest of this host
		says("")
		at(srcPath, 1)
		woken(subject.KindResume, srcPath, 0) // by an older program, which did not store the generation
		says(dstPath)
	})
}

// A move while all guests write has copied the whole volume once the last writes are copied.
func TestALiveMoveThatTheRegistryDoesNotKnowCountsFromItsLastCopy(t *testing.T) {
	toMake(t, func(t *testing.T, d *daemon, v api.LiveVolume) {
		v.Dst = d.make(v)
		d.world.Registry.LiveRow(api.MigrationCopying)
		d.mustLive("M.track", api.LiveTrack{LiveVolume: v, Generation: 1})
		d.mustLive("M.round.0", api.LiveRound{LiveVolume: v, Generation: 1, UntilBytes: v.Src.SizeBytes})
		must(t, d.world.Suspend(t.Context(), testInstance))
		d.world.Registry.LiveRow(api.MigrationCompleting)
		d.mustLive("M.read", api.LiveLastRead{LiveVolume: v, Generation: 1})
		must(t, d.checksWithoutRow(t))
		d.mustLive("M.last", api.LiveLastCopy{LiveVolume: v, Generation: 1})
		if err := d.checksWithoutRow(t); api.CodeOf(err) != api.CodeChainChanged {
			t.Errorf("%v, want chain_changed", err)
		}
	})
}
