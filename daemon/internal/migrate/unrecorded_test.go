// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// The registry's database comes back from a backup of before a move. The journal of the host has the
// volume at dst, with all that the guest wrote since.

// forgetsMove moves the volume, has the guest write and shuts it down, and puts a registry in the
// place of the other that does not know the move.
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

// saysWhichIsWhich claims of an error or an explanation that each witness is in it, and the right way.
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
				"start": d.manager().MayStart(ctx, testInstance), "repair": d.manager().CheckRecorded(ctx, testInstance),
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
		all, err := d.manager().Released(context.Background(), "")
		must(t, err)
		if len(all) != 1 || !all[0].Unrecorded || all[0].VolumePath != mig.Dst.Path || all[0].Blocked == "" || strings.Contains(all[0].WayOut(), "rm ") {
			t.Errorf("released are %+v", all)
		}
		if w := d.which(); w.Authoritative != nil || !strings.Contains(w.Explanation, "each may hold what the other lacks") {
			t.Errorf("which says %+v: %s", w.Authoritative, w.Explanation)
		}
	})
}

// Where a person has abandoned a move, the registry's place is that person's word.
func TestAnAbandonedMoveIsNoContradiction(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.forgetsMove(t)
		mig.State = api.MigrationError
		d.world.Registry.Rows[mig.ID] = mig
		must(t, d.manager().MayStart(context.Background(), testInstance))
	})
}

func TestWithoutTheRegistryAMoveIsNoContradiction(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.until(d.migrate(), api.MigrationCompleted)
		must(t, d.world.Stop(testInstance))
		must(t, d.manager().MayStart(context.Background(), testInstance))
		d.world.Registry.SetDown(true)
		must(t, d.manager().MayStart(context.Background(), testInstance))
	})
}
