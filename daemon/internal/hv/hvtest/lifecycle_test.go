// SPDX-License-Identifier: Apache-2.0

package hvtest_test

import (
	"errors"
	"maps"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

func state(t *testing.T, f *hvtest.Fake) hv.State {
	t.Helper()
	d, err := f.Domain(t.Context(), domain)
	must(t, err)
	return d.State
}

func TestGuestsObeyIgnoreOrNeedToBeAskedAgain(t *testing.T) {
	f := newGuest(t)
	ask := func(want hv.State) {
		t.Helper()
		must(t, f.Shutdown(t.Context(), domain))
		if got := state(t, f); got != want {
			t.Errorf("after it was asked the domain is %s, want %s", got, want)
		}
	}
	ask(hv.StateStopped)
	must(t, f.Start(domain), f.SetShutdown(domain, hvtest.ShutdownSlow))
	ask(hv.StateRunning)
	ask(hv.StateStopped)
	must(t, f.Start(domain), f.SetShutdown(domain, hvtest.ShutdownIgnores))
	ask(hv.StateRunning)
	ask(hv.StateRunning)
	must(t, f.SuspendByUser(domain), f.SetShutdown(domain, hvtest.ShutdownObeys))
	ask(hv.StatePaused)
	must(t, f.ResumeByUser(domain))
	if got := state(t, f); got != hv.StateStopped {
		t.Errorf("a guest that was asked while it was paused is %s when it runs", got)
	}
	f.AssertNoWriteLost(t)
}

func TestARebootStaysInItsProcess(t *testing.T) {
	f := newGuest(t)
	before, err := f.Domain(t.Context(), domain)
	must(t, err, f.RebootGuest(t.Context(), domain))
	after, err := f.Domain(t.Context(), domain)
	must(t, err)
	if f.Reboots(domain) != 1 || after.Run != before.Run {
		t.Errorf("%d reboots, process %d and then %d", f.Reboots(domain), before.Run, after.Run)
	}
}

func TestEveryStartAsksTheHook(t *testing.T) {
	f := newGuest(t)
	file := filepath.Join(t.TempDir(), "memory")
	must(t, f.SaveMemory(t.Context(), domain, file))
	refusal := errors.New("the root volume is missing")
	f.OnStart = func(string) error { return refusal }
	for name, err := range map[string]error{
		"PowerOn":       f.PowerOn(t.Context(), domain),
		"RestoreMemory": f.RestoreMemory(t.Context(), domain, file, hv.RestoreOptions{}),
		"Start":         f.Start(domain),
	} {
		if !errors.Is(err, hv.ErrGuarded) || !errors.Is(err, refusal) {
			t.Errorf("%s = %v, want ErrGuarded with the hook's text", name, err)
		}
	}
	if got := state(t, f); got != hv.StateStopped {
		t.Errorf("a domain that was refused is %s", got)
	}
}

func TestNVRAMTravelsWithTheDefinition(t *testing.T) {
	here, there := newGuest(t), hvtest.New()
	must(t, here.Destroy(domain), there.CreateImage(dst.Path, dst.Format, size))
	here.SetNVRAM(domain, []byte("boot entries"))
	def, err := here.DomainDefinition(t.Context(), domain)
	must(t, err, here.UndefineDomain(t.Context(), domain))
	if got := string(here.NVRAM(domain)); got != "boot entries" {
		t.Errorf("after the undefine the NVRAM is %q", got)
	}
	must(t, there.DefineDomain(t.Context(), domain, def, nil))
	if got := string(there.NVRAM(domain)); got != "boot entries" {
		t.Errorf("on the other host the NVRAM is %q", got)
	}
}

func TestWhatLeansOnItsHostHasNoDefinition(t *testing.T) {
	f := newGuest(t)
	must(t, f.SetLeansOn(domain, "a passed-through device"))
	if _, err := f.DomainDefinition(t.Context(), domain); !errors.Is(err, hv.ErrUnsupported) {
		t.Errorf("DomainDefinition = %v, want ErrUnsupported", err)
	}
}

func TestWritesSurviveASaveAndARestoreOnAnotherImage(t *testing.T) {
	f := newGuest(t)
	file := filepath.Join(t.TempDir(), "memory")
	must(t,
		f.SaveMemory(t.Context(), domain, file),
		f.Copy(overlay.Path, dst.Path), // no process has them open any more
		f.SetConfigChain(t.Context(), domain, "vda", []hv.Image{dst}),
		f.RestoreMemory(t.Context(), domain, file, hv.RestoreOptions{Chains: map[string][]hv.Image{"vda": {dst}}}),
		f.GuestWrite(domain, "vda", 2, 12),
	)
	wantContent(t, f, map[int64]uint64{0: 10, 1: 11, 2: 12})
	f.AssertNoWriteLost(t)
}

func TestARestoreOverAnotherContentIsNoticed(t *testing.T) {
	f := newGuest(t)
	file := filepath.Join(t.TempDir(), "memory")
	must(t,
		f.SaveMemory(t.Context(), domain, file),
		f.RestoreMemory(t.Context(), domain, file, hv.RestoreOptions{Chains: map[string][]hv.Image{"vda": {dst}}}),
	)
	got, err := f.AuthoritativeContent(domain, "vda")
	must(t, err)
	want, err := f.Acknowledged(domain, "vda")
	must(t, err)
	if maps.Equal(got, want) {
		t.Fatalf("the guest finds %v, as it left it", got)
	}
	probe := &recorder{TB: t}
	f.AssertNoWriteLost(probe)
	if !probe.failed {
		t.Error("AssertNoWriteLost did not notice the other content")
	}
}
