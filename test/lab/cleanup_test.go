// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// labDirVar has TestMain build a lab in this directory and wait to be killed.
const labDirVar = "VOLFERRY_LAB_TEST_DIR"

// leftToTestConformance skips a test that make test has no time for.
func leftToTestConformance(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: left to make test-conformance")
	}
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(labDirVar); dir != "" {
		if err := buildAndWait(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	m.Run()
}

// buildAndWait makes one of everything that a dead process leaves behind.
func buildAndWait(dir string) error {
	ctx := context.Background()
	l, err := StartLibvirtd(ctx, dir)
	if err != nil {
		return err
	}
	if _, err := LoopFS(ctx, filepath.Join(dir, "pool"), "ext4", 64); err != nil {
		return err
	}
	v := Volume{Path: filepath.Join(dir, "pool", "vol"), Format: "raw"}
	if err := MakeVolume(ctx, v, mib, Fill{}); err != nil {
		return err
	}
	g, err := l.DefineGuest(ctx, GuestConfig{Name: "guest", Disks: []Disk{{Volume: v}}})
	if err != nil {
		return err
	}
	if err := g.Start(ctx); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "ready")
	select {}
}

// mustBeClean demands that nothing but files is left of the lab in dir.
func mustBeClean(t *testing.T, dir string) {
	t.Helper()
	got, err := Remains(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string(nil), got); diff != "" {
		t.Errorf("left of the lab (-want +got):\n%s", diff)
	}
}

func TestSweepCleansUpAfterAKilledProcessOnly(t *testing.T) {
	alive := startLibvirtd(t)
	dir := TempDir(t)
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), labDirVar+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		t.Errorf("the child said %q, %v", line, err)
	}
	_ = child.Process.Kill()
	if !poll(time.Minute, func() bool { return startTime(child.Process.Pid) == "" }) {
		t.Error("a process that was killed and not waited for is taken to be alive")
	}
	_ = child.Wait() // it was killed
	if left, err := Remains(dir); err != nil || len(left) < 5 {
		t.Errorf("a killed process left %v, %v: want daemons, guest, mounts and loop device", left, err)
	}
	swept, err := Sweep()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(swept, alive.Dir) {
		t.Errorf("swept %v, and %s is alive", swept, alive.Dir)
	}
	mustBeClean(t, dir)
	mustVirsh(t, alive, "list")
}

func TestFileSystemsComeToARunningLibvirtdAndGo(t *testing.T) {
	l := startLibvirtd(t)
	for fstype, size := range map[string]int64{"ext4": 64, "xfs": 300, "btrfs": 128} {
		t.Run(fstype, func(t *testing.T) {
			if fstype != "ext4" {
				leftToTestConformance(t)
			}
			dir := filepath.Join(l.Dir, fstype)
			fs, err := LoopFS(t.Context(), dir, fstype, size)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.DirPool(t.Context(), fstype, dir); err != nil {
				t.Fatal(err)
			}
			mustVirsh(t, l, "vol-create-as", fstype, "vol", "1M")
			if _, err := os.Stat(filepath.Join(dir, "vol")); err != nil {
				t.Errorf("libvirtd does not see the file system: %v", err)
			}
			if fstype != "ext4" {
				if _, err := run(t.Context(), "cp", "--reflink=always", filepath.Join(dir, "vol"), filepath.Join(dir, "clone")); err != nil {
					t.Errorf("no reflink: %v", err)
				}
			}
			if found, err := l.Leftovers(t.Context()); err != nil || len(found) != 0 {
				t.Errorf("leftovers: %v, %v; want none: the file system is the lab's", found, err)
			}
			if err := fs.Close(); err != nil {
				t.Fatal(err)
			}
			if err := fs.Close(); err != nil {
				t.Errorf("second close: %v", err)
			}
			mustBeClean(t, dir)
			mustBeClean(t, dir+".img")
		})
	}
}

func TestAFileSystemIsUnmountedInTheMountNamespacesThatHaveACopyOfIt(t *testing.T) {
	Require(t)
	dir := filepath.Join(TempDir(t), "fs")
	fs, err := LoopFS(t.Context(), dir, "ext4", 64)
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "slave", "cat")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = other.Wait() })
	if _, err := io.WriteString(in, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it answers in its namespace
		t.Fatal(err)
	}
	if err := fs.Close(); err != nil {
		t.Fatal(err)
	}
	mustBeClean(t, dir)
	mustBeClean(t, dir+".img")
}

func TestAFileSystemInMemoryIsOnNoDiskAndGoneAfterItsClose(t *testing.T) {
	Require(t)
	dir := filepath.Join(TempDir(t), "fs")
	fs, err := MemoryFS(t.Context(), dir, "xfs", 300)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, mib), 0o600); err != nil {
		t.Error(err)
	}
	if _, err := run(t.Context(), "cp", "--reflink=always", filepath.Join(dir, "file"), filepath.Join(dir, "clone")); err != nil {
		t.Errorf("no reflink: %v", err)
	}
	loops, err := loopDevices()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(loops[fs.loop.Path], &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Errorf("its bytes are in %q, of a file system of type %x: %v", loops[fs.loop.Path], st.Type, err)
	}
	for range 2 {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	}
	mustBeClean(t, filepath.Dir(dir))
}

func TestLoopDeviceIsItsFile(t *testing.T) {
	Require(t)
	v := Volume{Path: filepath.Join(TempDir(t), "file"), Format: "raw"}
	if err := MakeVolume(t.Context(), v, mib, Fill{}); err != nil {
		t.Fatal(err)
	}
	loop, err := LoopDevice(v.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := FillVolume(loop.Path, Fill{Seed: 1, Percent: 50}); err != nil {
		t.Error(err)
	}
	if err := loop.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(v.Path)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) != mib || strings.Trim(string(data), "\x00") == "" {
		t.Errorf("the file has %d bytes, want 1 MiB with what was written to %s", len(data), loop.Path)
	}
	mustBeClean(t, v.Path)
}

func TestLeftoversFindsWhatAMigrationMayLeave(t *testing.T) {
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
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	overlays := filepath.Join(l.Dir, "overlays")
	if err := os.Mkdir(overlays, 0o711); err != nil { // QEMU passes it as another user
		t.Fatal(err)
	}
	if found, err := l.Leftovers(t.Context(), overlays); err != nil || len(found) != 0 {
		t.Fatalf("leftovers of a guest that just runs: %v, %v", found, err)
	}
	mustVirsh(t, l, "snapshot-create-as", "guest", "--disk-only", "--no-metadata", "--diskspec", "vda,file="+filepath.Join(overlays, "o"))
	if err := g.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	found, err := l.Leftovers(t.Context(), overlays)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(found, "\n")
	for _, want := range []string{"is paused", "has an overlay on vda", "file " + filepath.Join(overlays, "o")} {
		if !strings.Contains(all, want) {
			t.Errorf("not found: %q in\n%s", want, all)
		}
	}
	if err := g.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustVirsh(t, l, "blockcommit", "guest", "vda", "--active", "--wait")
	if found, err = l.Leftovers(t.Context()); err != nil || !strings.Contains(strings.Join(found, "\n"), "job on vda") {
		t.Errorf("a block job that waits is not found: %v, %v", found, err)
	}
	mustVirsh(t, l, "blockjob", "guest", "vda", "--pivot")
	if found, err = l.Leftovers(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("leftovers after the end of it all: %v, %v", found, err)
	}
}
