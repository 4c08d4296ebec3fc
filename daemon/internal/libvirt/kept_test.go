// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// syncs returns a library that records syncs instead of making them.
func syncs(t *testing.T) (l *library, take func() []string) {
	t.Helper()
	l = newLibrary(t.TempDir(), "/state")
	var synced []string
	l.sync = func(dir string) error { synced = append(synced, dir); return nil }
	l.syncAll = func(dir string) error { synced = append(synced, "all of "+dir); return nil }
	return l, func() []string { defer func() { synced = nil }(); return synced }
}

func durable(t *testing.T, l *library) {
	t.Helper()
	if err := l.MakeDurable(); err != nil {
		t.Fatal(err)
	}
}

func TestAtItsStartADaemonSyncsAllThatLibvirtKeeps(t *testing.T) {
	l, synced := syncs(t)
	durable(t, l)
	want := []string{l.definitions, l.definitions + "/autostart", "/state/save", "/state/snapshot", "/state/checkpoint", "/state/nvram"}
	if got := synced(); !slices.Equal(got, want) {
		t.Errorf("synced %v, want %v", got, want)
	}
	if c := New(Config{}).library; c.definitions != "/etc/libvirt/qemu" || c.state != "/var/lib/libvirt/qemu" {
		t.Errorf("libvirt's files are looked for in %s and %s", c.definitions, c.state)
	}
}

func TestOnlyWhatCallsHaveChangedIsSynced(t *testing.T) {
	l, synced := syncs(t)
	durable(t, l)
	synced()
	durable(t, l)
	if got := synced(); got != nil {
		t.Errorf("synced %v, and nothing had changed", got)
	}
	l.note(keptDefinitions, nil)
	l.note(keptNothing, fmt.Errorf("suspend: %w", hv.ErrUnavailable))
	l.note(keptSaves, errors.New("a refusal may leave something behind"))
	durable(t, l)
	if got, want := synced(), []string{l.definitions, "/state/save"}; !slices.Equal(got, want) {
		t.Errorf("synced %v, want %v", got, want)
	}
	durable(t, l)
	if got := synced(); got != nil {
		t.Errorf("synced %v again", got)
	}
}

// libvirtd may still execute a call with an unknown answer.
func TestAfterAnUnknownOutcomeItIsSyncedWithEveryRecord(t *testing.T) {
	l, synced := syncs(t)
	durable(t, l)
	synced()
	l.note(keptDefinitions, fmt.Errorf("lost: %w", hv.ErrUnavailable))
	for range 3 {
		durable(t, l)
		if got := synced(); !slices.Equal(got, []string{l.definitions}) {
			t.Fatalf("synced %v, want the definitions", got)
		}
	}
}

func TestWhatCouldNotBeSyncedIsSyncedTheNextTime(t *testing.T) {
	l, synced := syncs(t)
	durable(t, l)
	synced()
	well, boom := l.sync, errors.New("boom")
	l.sync = func(string) error { return boom }
	l.note(keptDefinitions, nil)
	if err := l.MakeDurable(); !errors.Is(err, boom) || !strings.Contains(err.Error(), l.definitions) {
		t.Fatalf("got %v, want the error with the directory", err)
	}
	l.sync = well
	durable(t, l)
	if got := synced(); !slices.Equal(got, []string{l.definitions}) {
		t.Errorf("synced %v, want the definitions", got)
	}
}

// A record must not be written before another step's sync of the same data has ended.
func TestASyncOfAnotherStepIsWaitedFor(t *testing.T) {
	l, _ := syncs(t)
	l.sync = func(string) error {
		if l.syncing.TryLock() {
			l.syncing.Unlock()
			return errors.New("who asks now is told that all is synced")
		}
		return nil
	}
	durable(t, l)
}

func TestADirectoryThatIsNotThereNeedsNoSync(t *testing.T) {
	l := newLibrary(t.TempDir(), t.TempDir()+"/none")
	durable(t, l)
}

func TestWithoutTheirDirectoryFilesystemsAreSyncedAfterAChangeOnly(t *testing.T) {
	l, synced := syncs(t)
	if err := os.Remove(l.definitions); err != nil {
		t.Fatal(err)
	}
	durable(t, l)
	if got, want := synced(), []string{"all of /etc", "all of /var/lib"}; !slices.Equal(got, want) {
		t.Errorf("synced %v, want %v", got, want)
	}
	durable(t, l)
	if got := synced(); got != nil {
		t.Errorf("synced %v, and nothing had changed", got)
	}
}
