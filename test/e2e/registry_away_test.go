// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// What a host does while its registry is away: nothing new begins, guests go on,
// and what has begun goes as far as it may without asking.

// loseRegistry kills the registry, and returns what brings it back.
func (h *host) loseRegistry(t *testing.T) (back func(*testing.T)) {
	t.Helper()
	h.KillRegistry()
	away := true
	back = func(t *testing.T) {
		t.Helper()
		if err := h.StartRegistry(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		away = false
		eventually(t, "the daemon has found the registry again", func() bool { return !h.isStale(t, "type", "list") })
	}
	t.Cleanup(func() {
		if !away {
			return
		}
		if err := h.StartRegistry(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return back
}

// isStale reports whether a read is answered from the daemon's memory.
func (h *host) isStale(t *testing.T, args ...string) bool {
	t.Helper()
	var doc struct {
		Stale bool     `json:"stale"`
		Age   *float64 `json:"age_seconds"`
	}
	out := h.ctl(t, append([]string{"-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if doc.Stale != (doc.Age != nil) {
		t.Errorf("stale is %v and the age %v", doc.Stale, doc.Age)
	}
	return doc.Stale
}

// loseRegistryThatWasRead is loseRegistry at a time when the daemon remembers the
// volume as it is. What is new at the registry it reads some seconds later.
func (h *host) loseRegistryThatWasRead(t *testing.T, v *volume) (back func(*testing.T)) {
	t.Helper()
	want := v.show(t)
	eventually(t, "the daemon has read what the registry knows", func() bool {
		back = h.loseRegistry(t)
		now, err := getAfter[api.Volume](t, h, "volume", "volume", "show", v.id)
		if err == nil && len(now.Attachments) == len(want.Attachments) {
			return true
		}
		back(t)
		<-time.After(2 * time.Second)
		return false
	})
	return back
}

func TestWithoutTheRegistryNothingNewBeginsAndGuestsGoOn(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g, off := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw)), h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	v, free := h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw)), h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	p := g.attach(t, v)
	p.writes(t)
	id, offID := g.attachment(t, "vda").ID, off.attachment(t, "vda").ID
	back := h.loseRegistryThatWasRead(t, v)
	for _, r := range []refusal{
		{"attach", api.CodeRegistryUnavailable, []string{"volume", "attach", free.name, g.Name}},
		{"volume migrate", api.CodeRegistryUnavailable, []string{"volume", "migrate", g.volumeName("vda"), "--to-pool", "b"}},
		{"volume migrate by mirror", api.CodeRegistryUnavailable, []string{"volume", "migrate", v.name, "--to-pool", "b", "--method", "mirror"}},
		{"migration start", api.CodeRegistryUnavailable, []string{"migration", "start", id, "--to-pool", "b"}},
		{"migration start of a stopped guest", api.CodeRegistryUnavailable, []string{"migration", "start", offID, "--to-pool", "b"}},
		{"volume create", api.CodeRegistryUnavailable, []string{"volume", "create", "new", "--size", "1MiB", "--pool", "a"}},
		{"volume delete", api.CodeRegistryUnavailable, []string{"volume", "delete", free.name, "--yes"}},
		{"volume retype", api.CodeRegistryUnavailable, []string{"volume", "retype", free.name, "--type", "default"}},
	} {
		t.Run("refused at once: "+r.name, func(t *testing.T) {
			begin := time.Now()
			h.refuses(t, r.code, r.args...)
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			g.assertSameSlots(t)
			off.assertSameSlots(t)
		})
	}
	t.Run("lists are old and say so", func(t *testing.T) {
		for _, args := range [][]string{
			{"volume", "list"},
			{"volume", "show", v.name},
			{"attachment", "list"},
			{"attachment", "show", id},
			{"instance", "list"},
			{"instance", "show", g.Name},
			{"pool", "list"},
			{"type", "list"},
			{"host", "list"},
		} {
			if !h.isStale(t, args...) {
				t.Errorf("volferryctl %s does not say that it is from memory", strings.Join(args, " "))
			}
		}
		if st := get[api.Status](t, h, "status", "status"); !st.Degraded {
			t.Errorf("status is not degraded: %+v", st)
		}
	})
	t.Run("guests are stopped and started", func(t *testing.T) {
		p.writes(t)
		g.powerOff(t)
		g.boot(t)
		p.writes(t)
	})
	t.Run("the daemon too", func(t *testing.T) {
		h.restartDaemon(t)
		if !h.isStale(t, "volume", "show", v.name) {
			t.Error("the new daemon remembers nothing")
		}
		h.refuses(t, api.CodeRegistryUnavailable, "volume", "attach", free.name, g.Name)
		p.writes(t)
	})
	back(t)
	q := g.attach(t, free)
	q.detach(t)
	p.quiesce(t)
	p.detach(t)
	p.assertHolds(t)
	g.assertSettled(t)
	off.assertSettled(t)
}

func TestDetachWithoutTheRegistryIsReleasedWhenItIsBack(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	p := g.attach(t, v)
	p.writes(t)
	p.quiesce(t)
	back := h.loseRegistryThatWasRead(t, v)
	h.ctl(t, "volume", "detach", v.name, g.Name)
	if err := g.WaitNoDisk(t.Context(), v.id); err != nil {
		t.Fatal(err)
	}
	g.assertNothingLeft(t, "running")
	mustContain(t, h.ctl(t, "status"), "releases", "1 ")
	if at := v.show(t).Attachments; len(at) != 1 || at[0].State != api.AttachmentDetaching {
		t.Errorf("while the release waits the attachments are %+v", at)
	}
	h.restartDaemon(t) // the release is durable
	back(t)
	eventually(t, "the release is told", func() bool { return v.show(t).Status == api.VolumeAvailable })
	p.assertDetached(t)
	p.assertHolds(t)
	g.attach(t, v).detach(t)
	g.assertSettled(t)
}

// The root volume is one of what the instance has: the host ends its detach alone, and starts the
// instance with what it was granted.
func TestARootLeavesWithoutTheRegistryAndDoesNotCome(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw), h.diskIn(t, a, api.FormatRaw))
	root := g.rootVolume(t)
	back := h.loseRegistryThatWasRead(t, root)
	h.ctl(t, "instance", "start", g.Name)
	g.seesItsDisks(t)
	g.write(t)
	g.powerOff(t)
	h.ctl(t, "volume", "detach", root.name, g.Name)
	g.cannotStart(t)
	h.refuses(t, api.CodeRegistryUnavailable, "volume", "attach", root.name, g.Name, "--root")
	h.restartDaemon(t) // the release is durable
	g.cannotStart(t)
	back(t)
	root.isReleased(t)
	g.assertRootDetached(t, root)
	g.attachRoot(t, root)
	g.boot(t)
	g.assertSettled(t)
}

func TestMigrationWithoutTheRegistryGoesAsFarAsItMay(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))

	t.Run("a start that has its lock goes on", func(t *testing.T) {
		h.restartRegistry(t, faultPoints+"=migration.transition.started.before_commit=kill") // when it hears that src is frozen
		id := idOf(t, h.ctl(t, "--no-wait", "migration", "start", g.attachment(t, "vda").ID, "--to-pool", otherPool(g.volume(t, "vda"))))
		if err := h.RegistryDied(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.untilItWaitsForTheRegistry(t, id)
		if at := h.slotsOf(t, g.Name)[0].Source; !strings.HasPrefix(at, h.Overlays()) {
			t.Errorf("the guest is on %s, want its overlay", at)
		}
		g.writes(t)
		if err := h.StartRegistry(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.untilState(t, id, api.MigrationStarted)
		h.ctl(t, "migration", "cancel", id)
		g.assertSettledAndGoOn(t)
	})
	for name, state := range map[string]string{
		"the copy goes on, and complete is refused":            "running",
		"the same with a stopped guest that wrote to its disk": "stopped",
	} {
		t.Run(name, func(t *testing.T) {
			g.be(t, "running")
			v := g.start(t, "vda", "--to-pool", otherPool(g.volume(t, "vda")), "--bandwidth", "8MiB/s")
			g.writes(t)
			g.be(t, state)
			v.copyPartly(t)
			back := h.loseRegistry(t)
			h.untilState(t, v.ID, api.MigrationCopied)
			h.refuses(t, api.CodeRegistryUnavailable, v.completeArgs()...)
			end := (*move).finish
			if state == "running" {
				g.writes(t)
				end = (*move).complete
			}
			v.assertFrozen(t)
			back(t)
			end(v, t)
			g.be(t, "running")
			g.assertSettledAndGoOn(t)
		})
	}
	for _, method := range []string{"overlay", "mirror"} {
		t.Run("what is in one go stops before the switch: "+method, func(t *testing.T) {
			before := g.volume(t, "vda")
			id := idOf(t, h.ctl(t, "--no-wait", "volume", "migrate", g.volumeName("vda"), "--method", method, "--to-pool", otherPool(before), "--bandwidth", "16MiB/s"))
			h.untilCopying(t, id)
			back := h.loseRegistry(t)
			h.untilItWaitsForTheRegistry(t, id)
			g.writes(t)
			if state := g.state(t); state != "running" {
				t.Errorf("the guest is %s", state)
			}
			back(t)
			h.ctl(t, "migration", "watch", id)
			h.untilState(t, id, api.MigrationCompleted)
			g.assertSettledAndGoOn(t)
		})
		t.Run("behind the switch the guest runs on: "+method, func(t *testing.T) {
			h.watchPoints(t)
			v := g.volume(t, "vda")
			id := idOf(t, h.ctl(t, "--no-wait", "volume", "migrate", g.volumeName("vda"), "--method", method, "--to-pool", otherPool(v)))
			eventually(t, "complete asks the registry for nothing more before the switch", func() bool {
				return slices.ContainsFunc(h.passed(t).of("migration_complete"), point.beforeTheSwitch)
			})
			back := h.loseRegistry(t)
			dst := get[api.Migration](t, h, "migration", "migration", "show", id).Dst
			eventually(t, "the guest is on the destination", func() bool { return h.slotsOf(t, g.Name)[0].Source == dst.Path })
			h.untilItWaitsForTheRegistry(t, id)
			g.writes(t)
			h.refuses(t, api.CodePastPointOfNoReturn, "migration", "cancel", id)
			back(t)
			h.ctl(t, "migration", "watch", id)
			h.untilState(t, id, api.MigrationCompleted)
			g.assertSettledAndGoOn(t)
		})
		t.Run("a cancel brings the guest back: "+method, func(t *testing.T) {
			v := g.volume(t, "vda")
			id := idOf(t, h.ctl(t, "--no-wait", "volume", "migrate", g.volumeName("vda"), "--method", method, "--to-pool", otherPool(v), "--bandwidth", "1MiB/s"))
			h.untilCopying(t, id)
			back := h.loseRegistry(t)
			h.ctl(t, "--no-wait", "migration", "cancel", id)
			h.untilItWaitsForTheRegistry(t, id)
			if got := h.slotsOf(t, g.Name)[0].Source; got != v.Location.Path {
				t.Errorf("the guest is on %s, and was on %s", got, v.Location.Path)
			}
			g.assertNothingLeft(t, "running")
			g.writes(t)
			back(t)
			h.ctl(t, "migration", "watch", id)
			h.untilState(t, id, api.MigrationCancelled)
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}

// untilState waits until a migration is in the state.
func (h *host) untilState(t *testing.T, id string, want api.MigrationState) {
	t.Helper()
	eventually(t, "the migration is "+string(want), func() bool {
		return get[api.Migration](t, h, "migration", "migration", "show", id).State == want
	})
}

// untilItWaitsForTheRegistry returns when that is all that a migration waits for.
func (h *host) untilItWaitsForTheRegistry(t *testing.T, id string) {
	t.Helper()
	eventually(t, "the migration waits for the registry", func() bool {
		return get[api.Migration](t, h, "migration", "migration", "show", id).Phase == "waiting for registry"
	})
}
