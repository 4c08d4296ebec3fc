// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/released"
	"github.com/volferry/volferry/internal/api"
)

func (d *daemon) writtenSources() []string {
	d.t.Helper()
	all, err := d.manager().Released.WrittenSources(context.Background(), testVolume)
	must(d.t, err)
	var out []string
	for i := range all {
		out = append(out, all[i].Difference())
	}
	return out
}

func (d *daemon) watchesSources() {
	m, ended := d.manager(), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		_ = m.Released.WatchSources(ctx)
	}()
	d.t.Cleanup(func() { cancel(); <-ended })
}

// A guest runs on the image that its volume has left, and is put back.
func TestASourceIsKnownToHaveWhatItsVolumeLacks(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.until(d.migrate(), api.MigrationCompleted)
		if got := d.writtenSources(); len(got) != 0 {
			t.Errorf("untouched: %q", got)
		}
		d.startOn(rawImage(srcPath))
		want := func(words ...string) {
			t.Helper()
			got := d.writtenSources()
			for _, word := range words {
				if len(got) != 1 || !strings.Contains(got[0], word) {
					t.Errorf("%q, want one that says %q", got, word)
				}
			}
		}
		want("the guest of instance web runs on "+srcPath, mig.ID, mig.Dst.Path)
		must(t, d.world.GuestWrite(testInstance, "vda", 0, 1<<40))
		d.startOn(rawImage(mig.Dst.Path))
		want(srcPath, mig.ID, "was written since", mig.Dst.Path)
		if w := d.which(); !w.Agree {
			t.Errorf("the guest is not on its volume: %s", w.Explanation)
		}
		if got, err := d.manager().Released.WrittenSources(context.Background(), uuid.NewString()); err != nil || len(got) > 0 {
			t.Errorf("of another volume: %+v, %v", got, err)
		}
	})
}

func TestAWrittenSourceSaysNothingOfAVolumeOnceItIsSettled(t *testing.T) {
	for name, settle := range map[string]func(t *testing.T, d *daemon, path string){
		"it was removed": func(t *testing.T, d *daemon, path string) { must(t, d.world.Remove(path)) },
		"it is a volume": func(_ *testing.T, d *daemon, path string) {
			d.world.Registry.Others = []api.Volume{{ID: uuid.NewString(), Name: "another", Host: testHost, Location: api.Location{Path: path}}}
		},
		"a later move has copied over it": func(t *testing.T, d *daemon, path string) {
			must(t, os.WriteFile(path, nil, 0o600))
			mig := d.begin(api.MigrationTarget{ToPath: path})
			d.copyAndCancel(mig.ID)
			d.ranOn(t, rawImage(path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				path, _ := d.leaveFile(t)
				if name != "a later move has copied over it" { // a later move would be refused
					d.ranOn(t, rawImage(path))
					if got := d.writtenSources(); len(got) != 1 {
						t.Errorf("before: %q, want one", got)
					}
				}
				settle(t, d, path)
				if got := d.writtenSources(); len(got) != 0 {
					t.Errorf("after: %q", got)
				}
			})
		})
	}
}

// A backup that begins right before the block job refuses it, and the op waits for the backup.
func TestAMirrorThatWasRefusedBeforeItWroteHidesNoReleasedSource(t *testing.T) {
	for name, c := range map[string]struct {
		world func(*testing.T, hv.State) *migratetest.World
	}{"": {migratetest.NewWorld}, "held": {losing}} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, c.world, hv.StateRunning, func(t *testing.T, d *daemon) {
				path, id := d.leaveFile(t)
				d.world.Inject(hvtest.Fault{Call: "BlockCopy", Do: func() { must(t, d.world.BeginBackup(testInstance, "vda")) }})
				mid := d.migrateTo(api.MigrationTarget{ToPath: path, Method: move.MethodMirror})
				d.awaitShown(mid, waitsForBackup)
				d.otherGuestWrites(t, path)
				d.until(d.cancels(mid), api.MigrationCancelled)
				must(t, d.world.EndBackup(testInstance, "vda"))
				d.isStillReleased(t, path, id)
			})
		})
	}
}

// After a lost answer the job may have begun. A backup makes the op wait then.
func TestAMirrorThatMayHaveBegunLeavesNoReleasedSource(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			path, _ := d.leaveFile(t)
			fault := hvtest.Fault{Call: "BlockCopy", Do: func() {
				must(t, d.world.BeginBackup(testInstance, "vda"))
				if !lost {
					must(t, d.world.Touch(path))
				}
			}}
			if lost {
				fault.Err = hv.ErrUnavailable
			}
			d.world.Inject(fault)
			mid := d.migrateTo(api.MigrationTarget{ToPath: path, Method: move.MethodMirror})
			d.awaitShown(mid, waitsForBackup)
			d.until(d.cancels(mid), api.MigrationCancelled)
			must(t, d.world.EndBackup(testInstance, "vda"))
			if slices.ContainsFunc(d.released(), func(r api.ReleasedSource) bool { return r.Location.Path == path }) {
				t.Errorf("lost %t: %s is a released source, and the mirror may have written it", lost, path)
			}
		})
	}
}

func TestAWrittenSourceIsNotedAtItsInstanceAndTheAuditTrailIsToldOnce(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.watchesSources()
		d.until(d.migrate(), api.MigrationCompleted)
		pass(2 * time.Minute)
		if got := d.manager().Released.WrittenSourceNote(testInstance); got != "" || len(d.world.Audits()) != 0 {
			t.Errorf("untouched: %q, the audit trail was told %q", got, d.world.Audits())
		}
		d.ranOn(t, rawImage(srcPath))
		pass(released.SourceWatchAfter + time.Second) // the start of the guest is an event
		note := d.manager().Released.WrittenSourceNote(testInstance)
		if !strings.Contains(note, srcPath) || !strings.Contains(note, "volferryctl doctor") {
			t.Errorf("the note is %q, want src and what says more", note)
		}
		if got := d.manager().Released.WrittenSourceNote(uuid.NewString()); got != "" {
			t.Errorf("the note of another instance is %q", got)
		}
		if got := d.manager().Released.KnownWrittenSources(); len(got) != 1 || !got[0].Written {
			t.Errorf("known are %+v, want src", got)
		}
		pass(5 * time.Minute)
		d.Restart()
		d.watchesSources()
		pass(5 * time.Minute)
		if got, want := d.world.Audits(), []string{"volume.source_written volume/" + testVolume}; !slices.Equal(got, want) {
			t.Errorf("the audit trail was told %q, want %q", got, want)
		}

		d.world.Registry.SetDown(true)
		pass(5 * time.Minute)
		if got := d.manager().Released.WrittenSourceNote(testInstance); got != note {
			t.Errorf("without a registry the note is %q, want what it was", got)
		}
		d.world.Registry.SetDown(false)
		must(t, d.world.Remove(srcPath))
		pass(2 * time.Minute)
		if got := d.manager().Released.WrittenSourceNote(testInstance); got != "" {
			t.Errorf("src is gone, and the note is %q", got)
		}
	})
}

func TestAReleasedSourceIsNotAdoptableWhileThereIsItsVolume(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		adoptable := func(path string) error {
			return d.manager().Released.CheckAdoptable(context.Background(), path, "cannot adopt volume x")
		}
		must(t, adoptable(srcPath))
		mig := d.until(d.migrate(), api.MigrationCompleted)
		must(t, adoptable(mig.Dst.Path))
		wantRefused := func(says string) {
			t.Helper()
			err := adoptable(srcPath)
			for _, want := range []string{"cannot adopt volume x", mig.ID, mig.Dst.Path, "--force", says} {
				if api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want conflict that says %q", err, want)
				}
			}
		}
		wantRefused("Nothing was written to it since")
		d.ranOn(t, rawImage(srcPath))
		wantRefused("each may have what the other lacks")
	})
}

func TestASourceThatCannotBeLookedAtHidesNoOther(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		path, id := d.leaveFile(t) // and srcPath before
		d.ranOn(t, rawImage(path))
		if got := d.writtenSources(); len(got) != 1 {
			t.Fatalf("%q, want %s", got, path)
		}
		d.world.Images.Unreadable = srcPath
		left, err := d.manager().Released.WrittenSources(context.Background())
		if err == nil || !strings.Contains(err.Error(), srcPath) || len(left) != 1 || left[0].MigrationID != id {
			t.Errorf("%+v, %v, want the source of %s and an error about %s", left, err, id, srcPath)
		}
	})
}

// isStillReleased claims that the image at path is a released source of migration id that was
// written since: nothing adopts it or writes over it unasked.
func (d *daemon) isStillReleased(t *testing.T, path, id string) {
	t.Helper()
	ctx := context.Background()
	if got := d.writtenSources(); len(got) != 1 {
		t.Errorf("written sources: %q, want the one that %s has left", got, id)
	}
	if !slices.ContainsFunc(d.released(), func(r api.ReleasedSource) bool { return r.Location.Path == path }) {
		t.Errorf("%s is no released source any more", path)
	}
	if err := d.manager().Released.CheckAdoptable(ctx, path, "cannot adopt"); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("an adoption: %v, want conflict", err)
	}
	if _, err := d.manager().Plan(ctx, testVolume, api.MigrationTarget{ToPath: path}); api.CodeOf(err) != api.CodeDstInUse {
		t.Errorf("a plan that overwrites it: %v, want dst_in_use", err)
	}
}
