// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startLibvirtd starts a private libvirtd that ends with the test.
func startLibvirtd(t *testing.T) *Libvirtd {
	t.Helper()
	Require(t)
	l, err := StartLibvirtd(t.Context(), TempDir(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func mustVirsh(t *testing.T, l *Libvirtd, args ...string) string {
	t.Helper()
	out, err := l.Virsh(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTwoLibvirtdsDoNotSeeEachOther(t *testing.T) {
	leftToTestConformance(t)
	a, b := startLibvirtd(t), startLibvirtd(t)
	xml := filepath.Join(a.Dir, "net.xml")
	if err := os.WriteFile(xml, []byte("<network><name>only-a</name></network>"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustVirsh(t, a, "net-define", xml)
	if got := mustVirsh(t, b, "net-list", "--all", "--name"); strings.TrimSpace(got) != "" {
		t.Errorf("b sees a's network: %q", got)
	}
	if _, err := os.Stat("/etc/libvirt/qemu/networks/only-a.xml"); !os.IsNotExist(err) {
		t.Errorf("the host's /etc/libvirt was written to: %v", err)
	}
}

func TestLibvirtdKeepsItsStateOverKillAndRestart(t *testing.T) {
	leftToTestConformance(t)
	l := startLibvirtd(t)
	xml := filepath.Join(l.Dir, "net.xml")
	if err := os.WriteFile(xml, []byte("<network><name>kept</name></network>"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustVirsh(t, l, "net-define", xml)
	if err := l.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Virsh(t.Context(), "list"); err == nil {
		t.Error("virsh was answered by a killed libvirtd")
	}
	for range 2 { // once after the kill, once while it runs
		if err := l.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(mustVirsh(t, l, "net-list", "--all", "--name")); got != "kept" {
			t.Errorf("networks after restart: %q, want %q", got, "kept")
		}
	}
}

// onOneProcessor has the test, and what it starts, run on one processor. libvirt takes it for
// another machine's where CPUID says (leaf 1FH, of newer processors) on which one it was asked.
func onOneProcessor(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if before.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

func TestALibvirtdKnowsOfTheOneBeforeWhatQEMUCanDo(t *testing.T) {
	onOneProcessor(t)
	ask := func(l *Libvirtd) {
		t.Helper()
		mustVirsh(t, l, "domcapabilities", "--emulatorbin", "/usr/bin/qemu-system-x86_64")
	}
	keptAt := func(l *Libvirtd) time.Time {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(capabilitiesIn(l.Dir), "*.xml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("libvirtd has nothing of what QEMU can do: %v", err)
		}
		info, err := os.Stat(files[0])
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	first := startLibvirtd(t)
	ask(first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := startLibvirtd(t)
	handedOn := keptAt(second)
	ask(second)
	if at := keptAt(second); !at.Equal(handedOn) {
		t.Errorf("QEMU was asked again at %v", at)
	}
}

func TestHookIsHeededAfterReload(t *testing.T) {
	l := startLibvirtd(t)
	v := Volume{Path: filepath.Join(l.Dir, "vol"), Format: "raw"}
	if err := MakeVolume(t.Context(), v, mib, Fill{}); err != nil {
		t.Fatal(err)
	}
	g, err := l.DefineGuest(t.Context(), GuestConfig{Name: "guest", Disks: []Disk{{Volume: v}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	hook := "#!/bin/sh\n[ \"$2\" != prepare ] || { echo not today >&2; exit 1; }\n"
	if err := os.WriteFile(filepath.Join(l.HooksDir, "qemu"), []byte(hook), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	if !poll(guestTimeout, func() bool {
		if err = g.Start(t.Context()); err == nil {
			err = g.Destroy(t.Context())
			return err != nil
		}
		return true
	}) || err == nil || !strings.Contains(err.Error(), "not today") {
		t.Errorf("start said %v, want the hook's refusal", err)
	}
}

func TestLibvirtdCloseLeavesNoProcessAndNoMount(t *testing.T) {
	Require(t)
	dir := TempDir(t)
	l, err := StartLibvirtd(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if procs, err := processesOf(dir); err != nil || len(procs) < 2 {
		t.Fatalf("processes of a running lab: %v, %v; want libvirtd and virtlogd", procs, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mustBeClean(t, dir)
	if err := l.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}
