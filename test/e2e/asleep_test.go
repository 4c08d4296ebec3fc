// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// libvirt suspends no guest that is asleep (S3) or has crashed, and it may run again at any moment.
func TestASwitchWaitsUntilAGuestThatSleepsOrHasCrashedRuns(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	bootsAgain := func(g *lab.Guest, ctx context.Context) error { return errors.Join(g.Reset(ctx), g.Resume(ctx)) }
	for name, guest := range map[string]struct {
		config      lab.GuestConfig
		rest, again func(*lab.Guest, context.Context) error
		state       api.InstanceState
	}{
		"asleep":  {lab.GuestConfig{CanSleep: true}, (*lab.Guest).Sleep, (*lab.Guest).Wake, api.InstanceAsleep},
		"crashed": {lab.GuestConfig{KeptInCrash: true}, (*lab.Guest).Crash, bootsAgain, api.InstanceCrashed},
	} {
		guest.config.Disks = []lab.Disk{h.diskIn(t, a, api.FormatRaw)}
		g := h.defineGuestLike(t, guest.config)
		g.boot(t)
		g.adopt(t)
		for end, want := range map[string]api.MigrationState{"complete": api.MigrationCompleted, "cancel": api.MigrationCancelled} {
			t.Run(name+", "+end, func(t *testing.T) {
				to := map[bool]string{true: "b", false: "a"}[g.volume(t, "vda").Location.Pool == "a"]
				v := g.start(t, "vda", "--to-pool", to)
				g.writes(t)
				v.copy(t)
				if err := guest.rest(g.Guest, t.Context()); err != nil {
					t.Fatal(err)
				}
				args := v.cancelArgs()
				if want == api.MigrationCompleted {
					args = v.completeArgs()
				}
				ended := g.inBackground(t, args...)
				show := func() api.Migration { return get[api.Migration](t, h, "migration", "migration", "show", v.ID) }
				eventually(t, "it waits for the guest", func() bool { return show().Phase == "waiting for wake" })
				if m := show(); m.Stopped() || m.Error != nil {
					t.Errorf("the migration is %s: %v", m.State, m.Error)
				}
				if i := get[api.Instance](t, h, "instance", "instance", "show", g.Name); i.State != guest.state {
					t.Errorf("the instance is shown as %s", i.State)
				}
				mustContain(t, h.refuses(t, api.CodeInstanceBusy, "instance", "reboot", g.Name).Message, string(guest.state))
				if err := guest.again(g.Guest, t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				if v.Migration = show(); v.State != want {
					t.Fatalf("the migration is %s, want %s", v.State, want)
				}
				g.noteMove(t, v.Migration)
				g.seesItsDisks(t)
				g.writes(t)
				g.assertSettledAndGoOn(t)
			})
		}
		g.assertSettled(t)
	}
}
