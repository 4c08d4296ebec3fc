// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// manySides is how many callers ask for one thing at once.
const manySides = 8

// together makes the same call from many sides at once, each under an op id of its own, and
// returns the answers and the codes of the refusals.
func (h *host) together(t *testing.T, args []string) (answers []api.Migration, refusals []api.Code) {
	t.Helper()
	type said struct {
		m   api.Migration
		err error
	}
	all := make(chan said, manySides)
	for range manySides {
		go func() {
			m, err := site.Get[api.Migration](context.WithoutCancel(t.Context()), h.Caller, "migration", args...)
			all <- said{m, err}
		}()
	}
	for range manySides {
		one := <-all
		if one.err == nil {
			answers = append(answers, one.m)
			continue
		}
		refusals = append(refusals, codeOf(one.err))
	}
	return answers, refusals
}

// Start, complete and cancel are asked for by many at once: one migration comes of it, and
// one end, and everybody is told the same.
func TestTheSameCallFromManySidesIsMadeOnce(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	for _, end := range []struct {
		name string
		want api.MigrationState
		args func(*move) []string
	}{
		{"complete", api.MigrationCompleted, (*move).completeArgs},
		{"cancel", api.MigrationCancelled, (*move).cancelArgs},
	} {
		t.Run(end.name, func(t *testing.T) {
			to := otherPool(g.volume(t, "vda"))
			begun, refused := h.together(t, []string{"migration", "start", g.attachment(t, "vda").ID, "--to-pool", to})
			if len(begun) != 1 {
				t.Fatalf("%d starts at once began %d migrations", manySides, len(begun))
			}
			for _, code := range refused {
				if code != api.CodeMigrationActive {
					t.Errorf("a start beside another is refused with %s", code)
				}
			}
			v := &move{g: g, target: "vda", Migration: begun[0], sum: sumOf(t, begun[0].Src.Path)}
			g.writes(t)
			v.copy(t)
			v.assertFrozen(t)
			ended, refused := h.together(t, end.args(v))
			for _, m := range ended {
				if m.ID != v.ID || m.State != end.want {
					t.Errorf("one of them was told %s of migration %s", m.State, m.ID)
				}
			}
			if len(refused) > 0 {
				t.Errorf("%d of %d were refused: %v", len(refused), manySides, refused)
			}
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}

// QEMU takes its time for the switch to the overlay, and start is cancelled meanwhile.
func TestACancelInTheMiddleOfAStartEndsOnTheSource(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	src := g.volume(t, "vda").Location
	stop := lab.Inject(t, g.pid(t), slowFlush...)
	started := g.inBackground(t, "-o", "json", "--progress", "none", "migration", "start", g.attachment(t, "vda").ID, "--to-pool", "b")
	m := g.migrationIn(t, api.MigrationStarting)
	cancelled := g.inBackground(t, "-o", "json", "--progress", "none", "migration", "cancel", m.ID)
	stop()
	if err := <-cancelled; err != nil {
		t.Errorf("cancel in the middle of start: %v", err)
	}
	if err := <-started; err == nil {
		t.Log("start was over before the cancel came")
	}
	h.untilState(t, m.ID, api.MigrationCancelled)
	if at := g.volume(t, "vda").Location; at != src {
		t.Errorf("the volume is at %+v, want %+v", at, src)
	}
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}

// Two volumes want to be the root of one instance.
func TestOfTwoRootsThatAreAttachedAtOnceOneWins(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw), h.diskIn(t, a, api.FormatRaw))
	root, other := g.rootVolume(t), h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	for range 4 {
		g.detachRoot(t, root)
		both := map[*volume]<-chan error{}
		for _, v := range []*volume{root, other} {
			both[v] = g.inBackground(t, "-o", "json", "--progress", "none", "volume", "attach", v.name, g.Name, "--root")
		}
		var won []*volume
		for v, end := range both {
			if err := <-end; err == nil {
				won = append(won, v)
			} else {
				t.Logf("%s was refused with %s", v.name, codeOf(err))
			}
		}
		if len(won) != 1 {
			t.Fatalf("%d of two roots were attached", len(won))
		}
		if got := g.rootSlot(t).VolumeID; got == nil || *got != won[0].id {
			t.Errorf("the root is %v, and %s was said to be", got, won[0].name)
		}
		if slots := g.persistentSlots(t); len(slots) != len(g.disks) || slots[0].Source != won[0].disk.Path {
			t.Errorf("the definition has %+v", slots)
		}
		if won[0] == other {
			g.detachRoot(t, other)
			g.attachRoot(t, root)
		}
	}
	g.assertSettled(t)
}
