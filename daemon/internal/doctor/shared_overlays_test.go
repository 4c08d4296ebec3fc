// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/location"
)

// sharing returns the configuration of a host with a shared overlay directory.
func sharing(t *testing.T, dir, id string) *config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.StateDir, cfg.OverlayDir, cfg.OverlayDirShared, cfg.HostID = t.TempDir(), dir, true, id
	cfg.SaveDir = filepath.Join(cfg.StateDir, "saves")
	return cfg
}

func TestHostsThatShareAnOverlayDirectoryHaveOneEach(t *testing.T) {
	dir := t.TempDir()
	a, b := sharing(t, dir, "id-a"), sharing(t, dir, "id-b")
	for _, cfg := range []*config.Config{a, b} {
		if err := config.MakeDirs(cfg); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, cfg.HostID))
		if err != nil || info.Mode().Perm() != 0o711 {
			t.Errorf("%v, %v: QEMU does not pass to the overlays of %s", info, err, cfg.HostID)
		}
	}
	if a.Overlays() == b.Overlays() {
		t.Errorf("both hosts use %s", a.Overlays())
	}
	a.OverlayDirShared = false
	if a.Overlays() != dir {
		t.Errorf("without the setting overlays are in %s", a.Overlays())
	}
}

func TestTheSharedOverlayDirectoryItselfIsTheOperators(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // what is looked at
		t.Fatal(err)
	}
	cfg := sharing(t, dir, "")
	cfg.OverlayDir = filepath.Join(dir, "gone since it was checked")
	if err := config.MakeDirs(cfg); err != nil { // the host's id is not known yet
		t.Fatal(err)
	}
	if _, err := os.Lstat(cfg.OverlayDir); !os.IsNotExist(err) {
		t.Errorf("the daemon has made the shared directory: %v", err)
	}
	cfg.OverlayDir = dir
	for _, d := range cfg.OwnDirs() {
		if d.Path == dir {
			t.Error("the daemon takes the shared directory for its own, and refuses its mode")
		}
	}
}

func TestASharedOverlayDirectoryThatCannotBeOneIsRefused(t *testing.T) {
	missing := sharing(t, filepath.Join(t.TempDir(), "not-mounted"), "id")
	own := sharing(t, "", "id")
	own.OverlayDir = filepath.Join(own.StateDir, "overlays")
	for want, cfg := range map[string]*config.Config{"mount it": missing, "state directory": own} {
		if err := cfg.CheckOverlayDir(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestDoctorRefusesSharedOverlaysOnAFilesystemOfThisHost(t *testing.T) {
	cfg := sharing(t, t.TempDir(), "id")
	fs, err := location.FilesystemOf(cfg.OverlayDir)
	if err != nil {
		t.Fatal(err)
	}
	if !fs.Local() {
		t.Skipf("the directory of the test is on %s, which may be another host's too", fs.Kind)
	}
	checks := (&Doctor{Cfg: cfg}).sharedOverlays()
	if len(checks) != 1 || checks[0].Status != "fail" || !strings.Contains(checks[0].Message, fs.Kind) {
		t.Errorf("%+v", checks)
	}
	if w := cfg.Warnings(); len(w) != 1 || !strings.Contains(w[0], "no other host sees") {
		t.Errorf("warnings %q", w)
	}
	cfg.OverlayDirShared = false
	if checks := (&Doctor{Cfg: cfg}).sharedOverlays(); len(checks) != 0 {
		t.Errorf("without the setting: %+v", checks)
	}
}

func TestALockThatKeepsNobodyOffIsFound(t *testing.T) {
	dir := t.TempDir()
	if err := locksIn(dir); err != nil {
		t.Errorf("locks work here: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v left, %v", left, err)
	}
	first, err := os.Create(filepath.Join(dir, "first"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	other, err := os.Create(filepath.Join(dir, "another file, so no conflict"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := lockExcludes(first, other); err == nil || !strings.Contains(err.Error(), "locks do not work there") {
		t.Errorf("%v", err)
	}
}
