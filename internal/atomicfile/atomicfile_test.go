// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestWriteReplacesContentAndMode(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "guard")
	if err := Write(path, []byte("first and longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("second"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "second" {
		t.Errorf("got %q, %v", got, err)
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if diff := cmp.Diff([]string{"guard"}, names(t, dir)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAReaderNeverSeesAHalfWrittenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "guard")
	if err := Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	if n, err := reader.Read(buf); err != nil || string(buf[:n]) != "old" {
		t.Errorf("the reader of the old file got %q, %v", buf[:n], err)
	}
}

func TestAFailedWriteLeavesEverythingAsItWas(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(path, "child"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if diff := cmp.Diff([]string{"taken"}, names(t, dir)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := Write(filepath.Join(dir, "absent", "f"), nil, 0o600); err == nil {
		t.Error("an absent directory is no error")
	}
}

func TestSweepRemovesWhatACrashHasLeftAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	f, err := os.CreateTemp(dir, ".guard"+temporary+"*") // as Write does
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	kept := []string{".hidden", "guard", "guard.tmp-1"}
	for _, name := range kept {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(kept, names(t, dir)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := Sweep(filepath.Join(dir, "absent")); err == nil {
		t.Error("an absent directory is no error")
	}
}

func TestSweepOldLeavesAWriteThatMayBeGoingOn(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for name, age := range map[string]time.Duration{".host.key" + temporary + "1": 2 * time.Hour, ".host.key" + temporary + "2": time.Minute, "host.key": 2 * time.Hour} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := SweepOld(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".host.key" + temporary + "2", "host.key"}, names(t, dir)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRemoveBearsAbsence(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "guard")
	if err := Write(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Remove(path); err != nil {
			t.Error(err)
		}
	}
	if err := Remove(filepath.Join(dir, "absent", "f")); err != nil {
		t.Error(err)
	}
	if got := names(t, dir); got != nil {
		t.Errorf("left behind: %v", got)
	}
	if err := os.MkdirAll(filepath.Join(path, "child"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Remove(path); err == nil {
		t.Error("a directory that is not empty was removed")
	}
}
