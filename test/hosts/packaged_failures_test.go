// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// begin starts to move the volume of a guest slowly, and returns in the middle of the
// copy.
func (h *siteHost) begin(t *testing.T, volume string) api.Migration {
	t.Helper()
	m := get[api.Migration](t, h.at, "migration", "volume", "migrate", volume, "--to-pool", sharedPool, "--bandwidth", "4MiB/s", "--no-wait")
	eventually(t, "the copy has begun", func() bool {
		m = get[api.Migration](t, h.at, "migration", "migration", "show", m.ID)
		// With bytes of it: the step of the copy asks the registry before the first one.
		return m.State == api.MigrationCopying && m.BytesDone > 0
	})
	return m
}

// completes waits until a migration has ended, and claims that it is completed.
func (h *siteHost) completes(t *testing.T, m api.Migration) {
	t.Helper()
	ctl(t, h.at, "migration", "watch", m.ID)
	if m = get[api.Migration](t, h.at, "migration", "migration", "show", m.ID); m.State != api.MigrationCompleted {
		t.Errorf("the migration is %s, want it completed", m.State)
	}
}

func (s *packagedSite) testRegistryAway(t *testing.T) {
	h := s.hosts[0]
	g := h.start(t, "patient")
	m := h.begin(t, "patient-vda")
	if err := s.registry.Kill(); err != nil {
		t.Fatal(err)
	}
	g.write(t, "vda")
	refuses(t, h.at, api.CodeRegistryUnavailable, "volume", "create", "meanwhile", "--size", "1MiB", "--pool", localPool)
	eventually(t, "the copy is done without the registry", func() bool {
		now := get[api.Migration](t, h.at, "migration", "migration", "show", m.ID)
		return now.State != api.MigrationCopying
	})
	g.write(t, "vda")
	if err := s.registry.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.completes(t, m)
	h.finish(t, g, "vda", "patient-vda")
}

func (s *packagedSite) testNetworkCut(t *testing.T) {
	h := s.hosts[1]
	g := h.start(t, "cut")
	m := h.begin(t, "cut-vda")
	// Packets vanish: nobody is told that a connection is no more.
	sh(t, h.Machine, `
		nft add table inet cut
		nft add chain inet cut in '{ type filter hook input priority 0; }'
		nft add chain inet cut out '{ type filter hook output priority 0; }'
		nft add rule inet cut in iifname eth0 drop
		nft add rule inet cut out oifname eth0 drop`)
	eventually(t, "the copy is done without the network", func() bool {
		now := get[api.Migration](t, h.at, "migration", "migration", "show", m.ID)
		return now.State != api.MigrationCopying
	})
	g.write(t, "vda")
	sh(t, h.Machine, "nft delete table inet cut")
	h.completes(t, m)
	eventually(t, "each connection to the registry has noticed that the network is back", func() bool {
		_, err := h.at.Ctl(t.Context(), "volume", "show", "cut-vda")
		return err == nil
	})
	h.finish(t, g, "vda", "cut-vda")
}

func (s *packagedSite) testReboot(t *testing.T) {
	h := s.hosts[0]
	g := h.start(t, "reborn")
	s.autostart(t, h, g)
	m := h.begin(t, "reborn-vda")
	if err := h.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.write(t, "vda")
	h.completes(t, m)
	h.finish(t, g, "vda", "reborn-vda")
}

func (s *packagedSite) testPowerCut(t *testing.T) {
	h := s.hosts[1]
	g := h.start(t, "struck")
	s.autostart(t, h, g)
	m := h.begin(t, "struck-vda")
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := g.WaitHeard(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	if err := h.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.write(t, "vda")
	h.completes(t, m)
	h.finish(t, g, "vda", "struck-vda", lab.PowerWasCutAt(cut)) // QEMU had not told the overlay all
}

// autostart has libvirt start a guest when its host boots.
func (s *packagedSite) autostart(t *testing.T, h *siteHost, g *guest) {
	t.Helper()
	if _, err := h.libvirt.Virsh(t.Context(), "autostart", g.Name); err != nil {
		t.Fatal(err)
	}
}
