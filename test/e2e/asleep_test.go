// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// libvirt does not suspend a guest that is asleep (S3), and the guest may wake at any moment.
func TestASwitchWaitsUntilAGuestThatSleepsIsAwake(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.defineGuestLike(t, lab.GuestConfig{Disks: []lab.Disk{h.diskIn(t, a, api.FormatRaw)}, CanSleep: true})
	g.boot(t)
	g.adopt(t)
	for name, end := range map[string]struct {
		args func(*move) []string
		want api.MigrationState
	}{
		"complete": {(*move).completeArgs, api.MigrationCompleted},
		"cancel":   {(*move).cancelArgs, api.MigrationCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			to := map[bool]string{true: "b", false: "a"}[g.volume(t, "vda").Location.Pool == "a"]
			v := g.start(t, "vda", "--to-pool", to)
			g.writes(t)
			v.copy(t)
			if err := g.Sleep(t.Context()); err != nil {
				t.Fatal(err)
			}
			ended := g.inBackground(t, end.args(v)...)
			show := func() api.Migration { return get[api.Migration](t, h, "migration", "migration", "show", v.ID) }
			eventually(t, "it waits for the guest", func() bool { return show().Phase == "waiting for wake" })
			if m := show(); m.Stopped() || m.Error != nil {
				t.Errorf("the migration is %s: %v", m.State, m.Error)
			}
			if i := get[api.Instance](t, h, "instance", "instance", "show", g.Name); i.State != api.InstanceAsleep {
				t.Errorf("the instance is shown as %s", i.State)
			}
			mustContain(t, h.refuses(t, api.CodeInstanceBusy, "instance", "reboot", g.Name).Message, "asleep")
			if err := g.Wake(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if v.Migration = show(); v.State != end.want {
				t.Fatalf("the migration is %s, want %s", v.State, end.want)
			}
			g.noteMove(t, v.Migration)
			g.writes(t)
			g.assertSettledAndGoOn(t)
		})
	}
	g.assertSettled(t)
}
