// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestCancelBringsTheGuestBackAtAnyTimeBeforeTheSwitch(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	before := g.volume(t, "vda")
	for i, when := range []struct {
		name      string
		bandwidth string
		do        func(*move, *testing.T)
	}{
		{"during the copy", "1MiB/s", (*move).copyPartly},
		{"after the copy", "0", (*move).copy},
		{"before the copy", "0", func(*move, *testing.T) {}},
	} {
		t.Run(when.name, func(t *testing.T) {
			if i > 1 {
				leftToTestE2E(t)
			}
			v := g.start(t, "vda", "--to-pool", "b", "--bandwidth", when.bandwidth)
			g.writes(t)
			when.do(v, t)
			v.assertFrozen(t)
			v.cancel(t)
			if got := g.volume(t, "vda").Location; got != before.Location {
				t.Errorf("the volume is at %+v, and was at %+v", got, before.Location)
			}
			if exists(t, v.Dst.Path) {
				t.Errorf("the destination that the migration made is still there: %s", v.Dst.Path)
			}
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}

// Somebody has removed the destination that the migration made, and put an image of his own in its
// place.
func TestACancelLeavesTheImageThatSomebodyHasPutInThePlaceOfTheDestination(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	for name, target := range map[string][]string{
		"at a path": {"--to-path", filepath.Join(b, "dst.raw")},
		"in a pool": {"--to-pool", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			v := g.start(t, "vda", target...)
			g.writes(t)
			theirs := h.diskIn(t, a, api.FormatRaw)
			for _, err := range []error{os.Remove(v.Dst.Path), os.Rename(theirs.Path, v.Dst.Path)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			theirs.Path = v.Dst.Path
			v.cancel(t)
			(&volume{host: h, disk: theirs}).assertUntouched(t)
			if err := os.Remove(theirs.Path); err != nil {
				t.Fatal(err)
			}
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}

func TestCancelLeavesADestinationThatWasThereBefore(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	there := h.diskIn(t, a, api.FormatRaw).Path
	v := g.start(t, "vda", "--to-path", there, "--yes")
	v.copy(t)
	v.cancel(t)
	if !exists(t, there) {
		t.Errorf("%s was the user's own, and is gone", there)
	}
	g.assertSettled(t)
}

func TestRepeatedAndLateCallsChangeNothing(t *testing.T) {
	leftToTestE2E(t)
	t.Run("running", func(t *testing.T) {
		h, a, _ := sharedPools(t)
		repeatedAndLateCalls(t, h.runningGuest(t, h.diskIn(t, a, api.FormatRaw)), (*guest).assertSettledAndGoOn)
	})
	t.Run("stopped", func(t *testing.T) {
		h, a, _ := sharedPools(t)
		repeatedAndLateCalls(t, h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw)), (*guest).assertSettled)
	})
}

// repeatedAndLateCalls makes calls that come twice or too late. Settled claims that the guest has
// all its writes and nothing is left behind.
func repeatedAndLateCalls(t *testing.T, g *guest, settled func(*guest, *testing.T)) {
	t.Helper()
	h := g.host

	t.Run("without a start", func(t *testing.T) {
		id := g.attachment(t, "vda").ID
		h.refuses(t, api.CodeNoMigration, "migration", "copy", id)
		h.refuses(t, api.CodeNoMigration, "migration", "complete", id, id)
		h.refuses(t, api.CodeNoMigration, "migration", "cancel", id)
	})
	t.Run("start twice", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", "b")
		e := h.refuses(t, api.CodeMigrationActive, "migration", "start", v.SrcAttachmentID, "--to-pool", "b")
		mustContain(t, e.Message, v.ID)
		h.refuses(t, api.CodeMigrationActive, "volume", "migrate", g.volumeName("vda"), "--to-pool", "b")
		h.refuses(t, api.CodeMigrationActive, "instance", "forget", g.Name)
		h.refuses(t, api.CodeCopyNotVerified, v.completeArgs()...)
		h.refuses(t, api.CodeNoMigration, "migration", "complete", v.SrcAttachmentID, v.SrcAttachmentID)
		v.cancel(t)
		settled(g, t)

		// The same again, and later.
		v.cancel(t)
		h.refuses(t, api.CodeNoMigration, v.completeArgs()...)
		h.refuses(t, api.CodeNoMigration, v.copyArgs()...)
		settled(g, t)
	})
	t.Run("complete twice", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", "b")
		v.copy(t)
		v.copy(t)
		v.finish(t)
		at := g.volume(t, "vda")
		again := get[api.Migration](t, h, "migration", v.completeArgs()...)
		if again.State != api.MigrationCompleted || again.ID != v.ID {
			t.Errorf("complete again: %+v", again)
		}
		h.refuses(t, api.CodePastPointOfNoReturn, v.cancelArgs()...)
		if now := g.volume(t, "vda"); now.Location != at.Location || now.Generation != at.Generation {
			t.Errorf("the volume was %+v and is %+v", at, now)
		}
	})
	g.assertSettled(t)
}
