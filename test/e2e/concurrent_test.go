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

// together has many ask for the same at once, each under an op id of its own, and returns the
// answers and the codes of the refusals.
func together[T any](ask func() (T, error)) (answers []T, refusals []api.Code) {
	type said struct {
		answer T
		err    error
	}
	all := make(chan said, manySides)
	for range manySides {
		go func() {
			answer, err := ask()
			all <- said{answer, err}
		}()
	}
	for range manySides {
		one := <-all
		if one.err == nil {
			answers = append(answers, one.answer)
			continue
		}
		refusals = append(refusals, codeOf(one.err))
	}
	return answers, refusals
}

// together is together for a command that answers with a migration.
func (h *host) together(t *testing.T, args []string) (answers []api.Migration, refusals []api.Code) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	return together(func() (api.Migration, error) {
		return site.Get[api.Migration](ctx, h.Caller, "migration", args...)
	})
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

// An attach and a detach are asked for by many at once, and once more when they are made: the guest
// is given the disk once and loses it once, and who comes too late is told so.
func TestTheSameAttachOrDetachFromManySidesIsMadeOnce(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	ctx := context.WithoutCancel(t.Context())
	ask := func(does string) func() (string, error) {
		return func() (string, error) { return h.Ctl(ctx, "-o", "json", "volume", does, v.name, g.Name) }
	}
	for range 3 {
		answers, refusals := together(ask("attach"))
		if len(answers) != 1 {
			t.Errorf("of %d attaches at once %d were made, and the others refused with %v", manySides, len(answers), refusals)
		}
		if _, err := ask("attach")(); codeOf(err) != api.CodeConflict {
			t.Errorf("an attach of what is attached: %v", err)
		}
		p := &plugged{volume: v, guest: g, mode: api.ModeRW, dev: "vdb"}
		g.took(t, p)
		p.writes(t)
		p.quiesce(t)

		answers, refusals = together(ask("detach"))
		if len(answers) != 1 {
			t.Errorf("of %d detaches at once %d were made, and the others refused with %v", manySides, len(answers), refusals)
		}
		if _, err := ask("detach")(); codeOf(err) != api.CodeNotFound {
			t.Errorf("a detach of what is not attached: %v", err)
		}
		p.assertDetached(t)
		p.assertHolds(t)
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
