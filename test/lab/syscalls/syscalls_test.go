// SPDX-License-Identifier: Apache-2.0

package syscalls

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab"
)

// definition is a domain that is never started.
const definition = `<domain type='qemu'><name>d</name><uuid>6e2f0c1e-4c83-4d5c-9a55-0d3b1f2a7c01</uuid><memory unit='MiB'>%</memory><os><type>hvm</type></os></domain>`

// shimmed is a libvirtd that was started with the library, and a function that defines a
// domain there with so much memory.
func shimmed(t *testing.T) (*lab.Libvirtd, *Shim, func(memory string) error) {
	t.Helper()
	lab.Require(t)
	l, err := lab.StartLibvirtd(t.Context(), lab.TempDir(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s := Load(t, filepath.Join(l.Dir, "shim"))
	l.Preload = s.Path()
	if err := l.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l, s, func(memory string) error {
		xml := filepath.Join(l.Dir, "d.xml")
		if err := os.WriteFile(xml, []byte(strings.Replace(definition, "%", memory, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := l.Virsh(t.Context(), "define", xml)
		return err
	}
}

func memoryOf(t *testing.T, l *lab.Libvirtd) string {
	t.Helper()
	xml, err := l.Virsh(t.Context(), "dumpxml", "d")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(xml, "<memory unit='KiB'>")
	memory, _, _ := strings.Cut(rest, "<")
	return memory
}

func TestLibvirtdDiesAtEachPointOfACallInItsOrder(t *testing.T) {
	l, s, define := shimmed(t)
	if err := define("16"); err != nil {
		t.Fatal(err)
	}
	s.Watch(t, Libvirtd, "")
	if err := define("17"); err != nil {
		t.Fatal(err)
	}
	// What it did before the call, as it started, is of none.
	points := slices.DeleteFunc(s.Passed(t, Libvirtd), func(p Point) bool { return p.Call == 0 })
	renamed := -1
	for i, p := range points {
		if p.CallName() != "define" && p.CallName() != "define_xml" {
			t.Fatalf("%s is no point of the call", p)
		}
		if p.Does == "rename" && strings.HasSuffix(p.What, "/d.xml") {
			renamed = i
		}
	}
	if renamed <= 0 || points[len(points)-1].Does != "answer" {
		t.Fatalf("the points of a definition: %v", points)
	}
	was := memoryOf(t, l)
	for i, p := range points {
		s.Arm(t, Libvirtd, "", p, Kill)
		memory := string("23456789"[i%2]) + "0"
		err := define(memory)
		if !s.Fired(t, Libvirtd) {
			t.Fatalf("libvirtd did not come to %s %s %s", p, p.Does, p.What)
		}
		if err == nil {
			t.Errorf("libvirtd died at %s, and answered", p)
		}
		if err := l.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		switch now := memoryOf(t, l); {
		case i <= renamed && now != was:
			t.Errorf("libvirtd died before %s %s, and the definition is the new one", p.Does, p.What)
		case i > renamed && now == was:
			t.Errorf("libvirtd died before %s %s, and the definition is the old one", p.Does, p.What)
		default:
			was = now
		}
	}
}

func TestLibvirtdStandsStillAtAPointUntilItIsLetOn(t *testing.T) {
	l, s, define := shimmed(t)
	s.Watch(t, Libvirtd, "")
	if err := define("16"); err != nil {
		t.Fatal(err)
	}
	passed := s.Passed(t, Libvirtd)
	s.Arm(t, Libvirtd, "", passed[0], Stop)
	defined := make(chan error, 1)
	go func() { defined <- define("17") }()
	expired := time.After(time.Minute)
	for !s.Fired(t, Libvirtd) {
		select {
		case err := <-defined:
			t.Fatalf("libvirtd went on: %v", err)
		case <-expired:
			t.Fatal("libvirtd did not come to the point")
		case <-time.After(time.Millisecond):
		}
	}
	select {
	case err := <-defined:
		t.Fatalf("libvirtd answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := l.Cont(); err != nil {
		t.Fatal(err)
	}
	if err := <-defined; err != nil {
		t.Error(err)
	}
}

func TestQemuImgDiesAtAWriteToTheImageThatIsMeant(t *testing.T) {
	lab.Require(t)
	s := Load(t, lab.TempDir(t))
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.raw"), filepath.Join(dir, "dst.qcow2")
	if err := os.WriteFile(src, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(s.Tools(t), "qemu-img")
	convert := func() error {
		return exec.CommandContext(t.Context(), program, "convert", "-f", "raw", "-O", "qcow2", src, dst).Run()
	}
	s.Watch(t, QemuImg, "dst.qcow2")
	if err := convert(); err != nil {
		t.Fatal(err)
	}
	points := s.Passed(t, QemuImg)
	if len(points) < 3 {
		t.Fatalf("points: %v", points)
	}
	s.Arm(t, QemuImg, "dst.qcow2", points[2], Kill)
	if err := convert(); err == nil || !s.Fired(t, QemuImg) || len(s.Passed(t, QemuImg)) != 3 {
		t.Errorf("qemu-img ended with %v, at %v", err, s.Passed(t, QemuImg))
	}
	s.Arm(t, QemuImg, "src.raw", points[2], Kill)
	if err := convert(); err != nil || s.Fired(t, QemuImg) {
		t.Errorf("qemu-img only reads src, and ended with %v", err)
	}
}

// The server of an image that is only read dies as it opens it.
func TestAServerOfAnImageDiesAtAReadOfTheImageThatIsMeant(t *testing.T) {
	lab.Require(t)
	s := Load(t, lab.TempDir(t))
	image := filepath.Join(t.TempDir(), "src.qcow2")
	tools := s.Tools(t)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(tools, string(QemuImg)), "create", "-f", "qcow2", image, "1M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	node := fmt.Sprintf("driver=qcow2,node-name=node,read-only=on,file.driver=file,file.filename=%s", image)
	ctx, cancel := context.WithTimeout(t.Context(), lab.Limit(time.Minute))
	defer cancel()
	s.Arm(t, StorageDaemon, "src.qcow2", Point{N: 2}, Kill)
	err := exec.CommandContext(ctx, filepath.Join(tools, string(StorageDaemon)), "--blockdev", node).Run()
	if err == nil || !s.Fired(t, StorageDaemon) {
		t.Errorf("it was to die at its second read, and ended with %v", err)
	}
	for _, p := range s.Passed(t, StorageDaemon) {
		if !strings.HasPrefix(p.Does, "pread") {
			t.Errorf("it reads an image, and did %s to it", p.Does)
		}
	}
	if n := len(s.Passed(t, StorageDaemon)); n != 2 {
		t.Errorf("it passed %d points, and died at the second", n)
	}
}

// workVar is the directory in which this program does what volferryd does, instead of its tests.
const workVar = "VOLFERRY_SYSCALLS_WORK"

func TestMain(m *testing.M) {
	if dir := os.Getenv(workVar); dir != "" {
		if err := work(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// work makes one file durable in the place of another.
func work(dir string) error {
	f, err := os.Create(filepath.Join(dir, "new"))
	if err != nil {
		return err
	}
	if _, err := f.WriteString("text"); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, "kept")); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, "old"))
}

// traced is a program of Go's that is traced as volferryd, and does its work when it is called.
func traced(t *testing.T) (s *Shim, dir string, command func() *exec.Cmd) {
	t.Helper()
	lab.Require(t)
	s, dir = Load(t, lab.TempDir(t)), t.TempDir()
	bin := t.TempDir()
	ourselves, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(ourselves, filepath.Join(bin, string(Volferryd))); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(s.Programs(t, bin), string(Volferryd))
	return s, dir, func() *exec.Cmd {
		if err := os.WriteFile(filepath.Join(dir, "old"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env, cmd.Stderr = append(os.Environ(), workVar+"="+dir), os.Stderr
		return cmd
	}
}

// steps are what the program does, in its order.
var steps = []string{"create new", "write new", "fsync new", "rename kept", "unlink old"}

func TestAProgramOfGosDiesRightBeforeASystemCall(t *testing.T) {
	s, dir, command := traced(t)
	s.Watch(t, Volferryd, dir)
	if err := command().Run(); err != nil {
		t.Fatal(err)
	}
	points := s.Passed(t, Volferryd)
	var got []string
	for _, p := range points {
		got = append(got, p.Does+" "+filepath.Base(p.What))
	}
	if !slices.Equal(got, steps) {
		t.Fatalf("it passed %q, want %q", got, steps)
	}
	exists := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	for i, p := range points {
		for _, name := range []string{"new", "kept"} {
			_ = os.Remove(filepath.Join(dir, name))
		}
		s.Arm(t, Volferryd, dir, p, Kill)
		if err := command().Run(); err == nil || !s.Fired(t, Volferryd) {
			t.Errorf("it was to die before %s, and ended with %v", steps[i], err)
		}
		if created, renamed, removed := exists("new") || exists("kept"), exists("kept"), !exists("old"); created != (i > 0) || renamed != (i > 3) || removed {
			t.Errorf("it died before %s: created %v, renamed %v, removed %v", steps[i], created, renamed, removed)
		}
	}
}

func TestAProgramOfGosStandsStillAtASystemCallUntilItIsLetOn(t *testing.T) {
	s, dir, command := traced(t)
	s.Arm(t, Volferryd, dir, Point{N: 4}, Stop)
	cmd := command()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	expired := time.After(time.Minute)
	for !s.Fired(t, Volferryd) {
		select {
		case err := <-ended:
			t.Fatalf("it went on: %v", err)
		case <-expired:
			t.Fatal("it did not come to the point")
		case <-time.After(time.Millisecond):
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("it went on: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
