// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/retry"
	libvirthook "github.com/volferry/volferry/packaging/libvirt-hook"
)

// hookedHost returns a host in a directory, with the hook, and a libvirt that started at since.
func hookedHost(t *testing.T, since time.Time) (*Doctor, *hvtest.Fake) {
	t.Helper()
	dir := t.TempDir()
	cfg := config.Default()
	cfg.StateDir, cfg.LibvirtHook = filepath.Join(dir, "state"), filepath.Join(dir, "hooks", "qemu.d", "volferry-guard")
	cfg.OverlayDir, cfg.SaveDir = filepath.Join(cfg.StateDir, "overlays"), filepath.Join(cfg.StateDir, "saves")
	if err := config.MakeDirs(cfg); err != nil {
		t.Fatal(err)
	}
	guards := guard.New(cfg.GuardDir(), cfg.LibvirtHook)
	script := strings.Replace(string(libvirthook.Script), "/var/lib/volferry/guards", cfg.GuardDir(), 1)
	if err := guards.InstallHook([]byte(script)); err != nil {
		t.Fatal(err)
	}
	fake := hvtest.New()
	fake.SetAbout(hv.About{Process: &hv.DaemonProcess{PID: os.Getpid(), ID: "first", Name: "libvirtd", Since: since}})
	return &Doctor{Cfg: cfg, HV: fake, Guards: guards, Proof: NewHookProof(cfg.StateDir, guards)}, fake
}

func TestDoctorKnowsWhetherLibvirtHasSeenTheHook(t *testing.T) {
	later, earlier := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	d, fake := hookedHost(t, earlier)
	if c := d.hook(t.Context()); c.Status != "warn" || !strings.Contains(c.Message, "may not have seen the hook") || !strings.Contains(c.Advice, "--fix") {
		t.Errorf("libvirtd was there before the hook: %+v", c)
	}
	fake.SetAbout(hv.About{Process: &hv.DaemonProcess{ID: "second", Name: "libvirtd", Since: later}})
	if c := d.hook(t.Context()); c.Status != "ok" || !strings.Contains(c.Message, "before libvirtd started") {
		t.Errorf("the hook was there before libvirtd: %+v", c)
	}
	// A package upgrade replaces the file. This libvirtd also runs the new one, as the next
	// volferryd knows.
	if err := d.Guards.InstallHook(libvirthook.Script); err != nil {
		t.Fatal(err)
	}
	fake.SetAbout(hv.About{Process: &hv.DaemonProcess{ID: "second", Name: "libvirtd", Since: earlier}})
	if why, proven := NewHookProof(d.Cfg.StateDir, d.Guards).of(&hv.DaemonProcess{ID: "second", Since: earlier}); !proven {
		t.Errorf("what was known of a libvirtd is forgotten with a new hook: %q", why)
	}
	if _, proven := d.Proof.of(&hv.DaemonProcess{ID: "third", Since: earlier}); proven {
		t.Error("what is known of one libvirtd counts for another")
	}
	fake.SetAbout(hv.About{})
	if c := d.hook(t.Context()); c.Status != "warn" {
		t.Errorf("libvirtd was not found: %+v", c)
	}
}

func TestAHookThatLibvirtDoesNotRunIsNoProof(t *testing.T) {
	later := time.Now().Add(time.Hour)
	d, _ := hookedHost(t, later)
	if !d.Guards.HookWasThere(later) || d.Guards.HookWasThere(time.Now().Add(-time.Hour)) {
		t.Fatal("a hook of now was not there in an hour, or was an hour ago")
	}
	if err := os.Chmod(d.Cfg.LibvirtHook, 0o644); err != nil {
		t.Fatal(err)
	}
	if d.Guards.HookWasThere(later) {
		t.Error("libvirt does not find a hook that is not executable")
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(d.Cfg.LibvirtHook), "another"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if !d.Guards.HookWasThere(later) {
		t.Error("libvirt that has found one hook looks through the directory at each start")
	}
}

func TestALibvirtThatIsMetWithTheHookInItsPlaceIsKnownFromThenOn(t *testing.T) {
	d, _ := hookedHost(t, time.Now().Add(time.Hour))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.WatchHook(ctx) }()
	for {
		if _, err := os.Stat(d.Proof.path); err == nil {
			break
		}
		if err := retry.Sleep(t.Context(), time.Millisecond); err != nil {
			t.Fatal("nothing was kept")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
