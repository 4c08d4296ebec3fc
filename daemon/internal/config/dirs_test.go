// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestEveryFirstStartMakesDirectoriesThatQEMUPasses(t *testing.T) {
	for _, umask := range []int{0o022, 0o077} {
		for range 50 { // the result must not depend on chance
			old := syscall.Umask(umask)
			cfg := Default()
			cfg.StateDir = filepath.Join(t.TempDir(), "volferry")
			cfg.OverlayDir, cfg.SaveDir = filepath.Join(cfg.StateDir, "overlays"), filepath.Join(cfg.StateDir, "saves")
			err := MakeDirs(cfg)
			syscall.Umask(old)
			if err != nil {
				t.Fatal(err)
			}
			for dir, want := range map[string]os.FileMode{
				cfg.StateDir: 0o711, cfg.OverlayDir: 0o711, cfg.SaveDir: 0o700,
				filepath.Join(cfg.StateDir, "guards"): 0o711, filepath.Join(cfg.StateDir, "cursors"): 0o700, filepath.Join(cfg.StateDir, "audit"): 0o700,
			} {
				info, err := os.Stat(dir)
				if err != nil {
					t.Fatal(err)
				}
				if got := info.Mode().Perm(); got != want {
					t.Fatalf("umask %03o: %s is %o, want %o", umask, filepath.Base(dir), got, want)
				}
			}
		}
	}
}

func TestADirectoryThatIsThereKeepsItsMode(t *testing.T) {
	cfg := Default()
	cfg.StateDir = t.TempDir()
	cfg.OverlayDir, cfg.SaveDir = filepath.Join(cfg.StateDir, "overlays"), filepath.Join(cfg.StateDir, "saves")
	if err := os.Chmod(cfg.StateDir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := MakeDirs(cfg); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o750 {
		t.Errorf("the mode that its owner gave it was changed to %o", info.Mode().Perm())
	}
}

func TestAStartRemovesWhatAKilledDaemonWasWriting(t *testing.T) {
	cfg := Default()
	cfg.StateDir = filepath.Join(t.TempDir(), "volferry")
	cfg.OverlayDir, cfg.SaveDir = filepath.Join(cfg.StateDir, "overlays"), filepath.Join(cfg.StateDir, "saves")
	if err := MakeDirs(cfg); err != nil {
		t.Fatal(err)
	}
	guard := filepath.Join(cfg.GuardDir(), "45f85f92-d48c-42b4-a4ca-1b7b46b3db68")
	left := filepath.Join(cfg.GuardDir(), ".45f85f92-d48c-42b4-a4ca-1b7b46b3db68.tmp-1139974973")
	for _, path := range []string{guard, left} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := SweepDirs(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(guard); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what a killed daemon left is still there: %v", err)
	}
}
