// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// found reports whether one of the checks with this name and status has the text.
func found(checks []api.Check, name, status, text string) bool {
	return slices.ContainsFunc(checks, func(c api.Check) bool {
		return c.Name == name && c.Status == status && strings.Contains(c.Message, text)
	})
}

func TestDoctorNamesTheBugsOfAVersion(t *testing.T) {
	bookworm := hv.About{Libvirt: hv.VersionOf(9_000_000), QEMU: hv.VersionOf(7_002_022), SecurityModels: []string{"apparmor", "dac"}, GivesImages: true, RemembersOwners: true}
	with := func(edit func(*hv.About)) hv.About {
		about := bookworm
		edit(&about)
		return about
	}
	const aborted, missed, dies, older, none = "issue 806", "0f51f9c342", "32125b1460", "the oldest that Volferry is tested with", "runs no hook in qemu.d"
	for name, tc := range map[string]struct {
		about hv.About
		bugs  []string
	}{
		"Debian 12":                         {bookworm, []string{aborted, dies}},
		"without AppArmor":                  {with(func(a *hv.About) { a.SecurityModels = []string{"dac"} }), []string{dies}},
		"Debian 13":                         {with(func(a *hv.About) { a.Libvirt, a.QEMU = hv.VersionOf(11_003_000), hv.VersionOf(10_000_013) }), []string{aborted}},
		"Debian 13 as it came out":          {with(func(a *hv.About) { a.Libvirt, a.QEMU = hv.VersionOf(11_003_000), hv.VersionOf(10_000_002) }), []string{aborted, missed}},
		"newer than all of them":            {with(func(a *hv.About) { a.Libvirt, a.QEMU = hv.VersionOf(12_001_000), hv.VersionOf(11_000_000) }), nil},
		"the last QEMU before, the first":   {with(func(a *hv.About) { a.QEMU = hv.VersionOf(8_000_000) }), []string{aborted, missed}},
		"the first libvirt with qemu.d":     {with(func(a *hv.About) { a.Libvirt = hv.VersionOf(6_005_000) }), []string{aborted, dies, older}},
		"older than hooks in a directory":   {with(func(a *hv.About) { a.Libvirt = hv.VersionOf(6_004_000) }), []string{none, aborted, dies, older}},
		"no QEMU at all, which is no bug":   {with(func(a *hv.About) { a.QEMU = hv.Version{} }), []string{aborted}},
		"an old QEMU that nobody has tried": {with(func(a *hv.About) { a.QEMU = hv.VersionOf(6_002_000) }), []string{aborted, dies, older}},
	} {
		fake := hvtest.New()
		fake.SetAbout(tc.about)
		checks := (&Doctor{Cfg: config.Default(), HV: fake}).libvirt(t.Context())
		bugs := slices.DeleteFunc(slices.Clone(checks), func(c api.Check) bool { return c.Name != "known bug" })
		if len(bugs) != len(tc.bugs) {
			t.Errorf("%s: %+v, want %q", name, bugs, tc.bugs)
			continue
		}
		for i, want := range tc.bugs {
			if !strings.Contains(bugs[i].Message, want) || bugs[i].Advice == "" || (bugs[i].Status == "fail") != (want == none) {
				t.Errorf("%s: %+v, want %q", name, bugs[i], want)
			}
		}
		if !found(checks, "libvirt", "ok", tc.about.Libvirt.String()) {
			t.Errorf("%s: %+v does not say which libvirt it is", name, checks)
		}
	}
}

func TestDoctorSaysThatALockManagerStopsMovesOfRunningGuests(t *testing.T) {
	fake := hvtest.New()
	check := func() []api.Check { return (&Doctor{Cfg: config.Default(), HV: fake}).libvirt(t.Context()) }
	fake.UseLockManager("")
	if checks := check(); found(checks, "lock manager", "fail", "") {
		t.Errorf("%+v, and nothing stops a move", checks)
	}
	fake.UseLockManager("libvirt locks images with sanlock")
	if checks := check(); !found(checks, "lock manager", "fail", "sanlock") {
		t.Errorf("%+v does not name the lock manager", checks)
	}
}

// A bug that Volferry works around deserves no warning.
func TestDoctorSaysWhatCanHappenToAGuestWhenACopyBegins(t *testing.T) {
	for qemu, bug := range map[uint64]string{10_000_002: "0f51f9c342", 7_002_022: "32125b1460"} {
		for setting, want := range map[string]string{config.SuspendAuto: "ok", config.SuspendAlways: "ok", config.SuspendNever: "warn"} {
			fake := hvtest.New()
			fake.SetAbout(hv.About{QEMU: hv.VersionOf(qemu)})
			cfg := config.Default()
			cfg.SuspendAtJobStart = setting
			if checks := (&Doctor{Cfg: cfg, HV: fake}).libvirt(t.Context()); !found(checks, "known bug", want, bug) {
				t.Errorf("QEMU %d, suspend_at_job_start %s: %+v, want %s", qemu, setting, checks, want)
			}
		}
	}
}

func TestDoctorSaysWhatQemuConfKeepsFromAMove(t *testing.T) {
	d := &Doctor{Cfg: &config.Config{OverlayDir: t.TempDir()}, HV: hvtest.New()}
	for name, tc := range map[string]struct {
		about        hv.About
		status, text string
	}{
		"Debian's":            {hv.About{SecurityModels: []string{"apparmor", "dac"}, GivesImages: true, RemembersOwners: true}, "ok", "apparmor, dac"},
		"dynamic_ownership 0": {hv.About{SecurityModels: []string{"dac"}, RemembersOwners: true}, "warn", "dynamic_ownership is 0"},
		"remember_owner 0":    {hv.About{SecurityModels: []string{"dac"}, GivesImages: true}, "warn", "remember_owner is 0"},
	} {
		if checks := d.security(t.Context(), tc.about); !found(checks, "security", tc.status, tc.text) {
			t.Errorf("%s: %+v, want %s with %q", name, checks, tc.status, tc.text)
		}
	}
}

func TestDoctorMissesQEMUAndLibvirt(t *testing.T) {
	fake := hvtest.New()
	fake.SetAbout(hv.About{})
	d := &Doctor{Cfg: config.Default(), HV: fake}
	if checks := d.libvirt(t.Context()); !found(checks, "QEMU", "fail", "finds no QEMU") {
		t.Errorf("libvirt has no emulator: %+v", checks)
	}
	synctest.Test(t, func(t *testing.T) {
		fake := hvtest.New()
		fake.Disconnect()
		d := &Doctor{Cfg: config.Default(), HV: fake}
		if checks := d.libvirt(t.Context()); len(checks) != 1 || checks[0].Status != "fail" || !strings.Contains(checks[0].Message, "a wait of 10s") {
			t.Errorf("libvirt is away: %+v", checks)
		}
	})
}

// TestDoctorWaitsForALibvirtThatIsRestarted, as right after the installation of packages.
func TestDoctorWaitsForALibvirtThatIsRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := hvtest.New()
		fake.Disconnect()
		time.AfterFunc(3*time.Second, fake.Reconnect)
		if checks := (&Doctor{Cfg: config.Default(), HV: fake}).libvirt(t.Context()); !found(checks, "libvirt", "ok", "connected") {
			t.Errorf("libvirt is restarted: %+v", checks)
		}
	})
}
