// SPDX-License-Identifier: Apache-2.0

// Package syscalls kills or stops libvirtd, QEMU, qemu-img, qemu-storage-daemon or volferryd at a
// system call of a test's choice: right before the Nth by which a call of libvirt changes
// something. A test lets the call pass once to learn which ones there are, and then makes it again
// for each of them.
//
// It loads a small library into the programs (LD_PRELOAD), and traces nothing. strace counts
// per thread, and in libvirtd one thread reads the call, another one works it off, a third one
// writes to QEMU's monitor, and which ones those are is another each time; the library counts
// for the whole process and for what it forks, so that the Nth is the same one every time. It
// sees what is written: a question to QEMU is no point, a command is; and it knows by the
// answer of libvirtd when that has gone out. It costs nothing where it is not asked for.
//
// A point of libvirtd is one of: a write to a file that is kept (a status file, a definition),
// what makes, renames, removes, syncs or gives away one, a command on a monitor, a signal, a
// program that is started, and the answer to the caller. They are numbered from when the call
// was read to when the next one is that changes something, so what libvirtd does by itself
// behind its answer, as at the end of a block job, belongs to the call before. What it does when
// it starts is numbered as a call, too.
//
// A point of QEMU or qemu-img is at an image of the test's choice: a write, what makes it or
// changes its size, and both sides of a sync. qemu-storage-daemon, which serves an image to a copy,
// has its reads besides: where it serves the source it does nothing else.
//
// volferryd makes its system calls itself, so that no library sees them. It is started with a
// filter (seccomp) that has the kernel ask a tracer of ours before each that may change something.
// Its points are those at files of the test's choice, as of QEMU, and its requests to libvirt and
// to the registry; one at which it dies has been sent.
package syscalls

import (
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/volferry/volferry/test/lab"
)

//go:embed shim/*
var sources embed.FS

// Program is one into which the library is loaded.
type Program string

// The programs. The points of all but libvirtd are at files that are chosen.
const (
	Libvirtd      Program = "libvirtd"
	QEMU          Program = "qemu"
	QemuImg       Program = "qemu-img"
	StorageDaemon Program = "qemu-storage-daemon"
	Volferryd     Program = "volferryd"
)

// Action is what is done to a program at a point.
type Action uint32

// Kill is SIGKILL, Stop is SIGSTOP: it lasts until somebody sends SIGCONT.
const (
	nothing Action = iota
	Kill
	Stop
)

// Point is right before a system call by which a program changes something.
type Point struct {
	Call uint32 // libvirt's number of the call
	Time uint32 // which one of these calls
	N    uint32 // which changing system call of that
	Does string // its name
	What string // on what: a file, a command of QEMU's, a side of a sync
}

// String is the point's name: define.2.7.
func (p Point) String() string { return fmt.Sprintf("%s.%d.%d", p.CallName(), p.Time, p.N) }

// CallName is the name of the call of libvirt. A point of another program is of none, and has that
// of the system call.
func (p Point) CallName() string {
	if p.Call == 0 {
		return p.Does
	}
	if name, ok := callNames[p.Call]; ok {
		return name
	}
	return "call" + strconv.FormatUint(uint64(p.Call), 10)
}

// The numbers are those of libvirt's remote_protocol.x, with 1000 more of its qemu_protocol.x;
// the library has the same (changing).
var callNames = map[uint32]string{
	9: "create", 10: "create_xml", 11: "define_xml", 12: "destroy", 27: "reboot", 28: "resume", 29: "set_autostart",
	33: "shutdown", 34: "suspend", 35: "undefine", 54: "restore", 55: "save", 93: "vol_create",
	94: "vol_delete", 160: "attach", 161: "detach", 174: "update", 182: "managed_save", 185: "snapshot", 196: "create_flags",
	231: "undefine_flags", 232: "save_flags", 233: "restore_flags", 234: "destroy_flags", 237: "job_abort", 239: "job_speed",
	245: "reset", 251: "block_resize", 252: "iotune", 258: "shutdown_flags", 290: "block_commit", 345: "block_copy",
	350: "define", 392: "detach_alias", 440: "save_params", 441: "restore_params", 1001: "qmp", starting: "start_of_libvirtd",
}

// The layout of struct plan.
const (
	calls      = 2048
	starting   = calls - 1
	wordBytes  = 4
	timesAt    = 8 * wordBytes
	matchAt    = timesAt + calls*wordBytes
	matchBytes = 256
	planBytes  = matchAt + matchBytes
	firedAt    = 5 * wordBytes
)

// Shim is the library, and what it was asked for.
type Shim struct{ dir string }

// Load compiles the library into a directory, whose files QEMU's user must be able to
// open. Where there is no compiler the test is skipped, or fails if the lab is required.
func Load(tb testing.TB, dir string) *Shim {
	tb.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		lab.SkipOrFail(tb, "the test needs gcc (packages gcc and libc6-dev); run make compiler as root")
	}
	s := &Shim{dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	shim, err := fs.Sub(sources, "shim")
	if err := errors.Join(err, os.CopyFS(s.sources(), shim)); err != nil {
		tb.Fatal(err)
	}
	s.compile(tb, s.Path(), "shim.c", "-fPIC", "-shared", "-ldl")
	for _, p := range []Program{Libvirtd, QEMU, QemuImg, StorageDaemon, Volferryd} {
		for _, path := range []string{s.plan(p), s.log(p)} {
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666)); err != nil {
				tb.Fatal(err)
			}
		}
		s.write(tb, p, 0, make([]byte, planBytes))
	}
	return s
}

func (s *Shim) sources() string { return filepath.Join(s.dir, "sources") }

// compile makes a program or a library of one of the sources.
func (s *Shim) compile(tb testing.TB, into, source string, args ...string) {
	tb.Helper()
	args = append([]string{"-O2", "-Wall", "-Werror", "-o", into, filepath.Join(s.sources(), source)}, args...)
	if out, err := exec.CommandContext(tb.Context(), "gcc", args...).CombinedOutput(); err != nil {
		tb.Fatalf("compile %s: %v: %s", source, err, out)
	}
}

// Path is the library, for LD_PRELOAD.
func (s *Shim) Path() string { return filepath.Join(s.dir, "shim.so") }

func (s *Shim) plan(p Program) string { return filepath.Join(s.dir, string(p)+".plan") }
func (s *Shim) log(p Program) string  { return filepath.Join(s.dir, string(p)+".log") }

// Tools makes a directory with a qemu-img and a qemu-storage-daemon that load the library. It is to
// be the first of the PATH of who runs them: nothing else of an environment comes to them.
func (s *Shim) Tools(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(s.dir, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	for _, tool := range []Program{QemuImg, StorageDaemon} {
		program, err := exec.LookPath(string(tool))
		if err != nil {
			tb.Fatal(err)
		}
		script := fmt.Sprintf("#!/bin/sh\nLD_PRELOAD=%s exec %s \"$@\"\n", s.Path(), program)
		if err := os.WriteFile(filepath.Join(dir, string(tool)), []byte(script), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// Programs makes a directory with what is in that of our programs, in which volferryd is started
// with its system calls traced.
func (s *Shim) Programs(tb testing.TB, bin string) string {
	tb.Helper()
	dir := filepath.Join(s.dir, "programs")
	programs, err := os.ReadDir(bin)
	if err := errors.Join(err, os.MkdirAll(dir, 0o755)); err != nil {
		tb.Fatal(err)
	}
	for _, p := range programs {
		at, traced := filepath.Join(bin, p.Name()), filepath.Join(dir, p.Name())
		if p.Name() == string(Volferryd) {
			s.compile(tb, traced, "trace.c", fmt.Sprintf("-DPLANS=%q", s.dir), fmt.Sprintf("-DPROGRAM=%q", Volferryd), fmt.Sprintf("-DBEHIND=%q", at))
		} else if err := os.Symlink(at, traced); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// Watch has the points of a program noted from now on. Image is a part of the path of the
// images and files at which those of all but libvirtd are.
func (s *Shim) Watch(tb testing.TB, p Program, image string) {
	tb.Helper()
	s.begin(tb, p, image, Point{}, nothing)
}

// Arm has a program killed or stopped at a point, once. Time and N of the point are counted
// from now on, as they were since Watch.
func (s *Shim) Arm(tb testing.TB, p Program, image string, at Point, does Action) {
	tb.Helper()
	s.begin(tb, p, image, at, does)
}

func (s *Shim) begin(tb testing.TB, p Program, image string, at Point, does Action) {
	tb.Helper()
	s.Off(tb, p)
	if err := os.Truncate(s.log(p), 0); err != nil {
		tb.Fatal(err)
	}
	plan := make([]byte, planBytes)
	for i, w := range []uint32{0, uint32(does), at.Call, at.Time, at.N} {
		binary.NativeEndian.PutUint32(plan[i*wordBytes:], w)
	}
	if copy(plan[matchAt:], image) >= matchBytes {
		tb.Fatalf("the name of image %s is too long", image)
	}
	s.write(tb, p, 0, plan)
	s.set(tb, p, 1)
}

// Off has nothing noted and nobody killed any more.
func (s *Shim) Off(tb testing.TB, p Program) {
	tb.Helper()
	s.set(tb, p, 0)
}

func (s *Shim) set(tb testing.TB, p Program, watching uint32) {
	tb.Helper()
	s.write(tb, p, 0, binary.NativeEndian.AppendUint32(nil, watching))
}

// write changes the plan in place: programs have it mapped.
func (s *Shim) write(tb testing.TB, p Program, at int64, data []byte) {
	tb.Helper()
	f, err := os.OpenFile(s.plan(p), os.O_WRONLY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = f.WriteAt(data, at)
	if err := errors.Join(err, f.Close()); err != nil {
		tb.Fatal(err)
	}
}

// Fired reports whether the program was killed or stopped.
func (s *Shim) Fired(tb testing.TB, p Program) bool {
	tb.Helper()
	plan, err := os.ReadFile(s.plan(p))
	if err != nil || len(plan) < planBytes {
		tb.Fatalf("read plan of %s: %d bytes, %v", p, len(plan), err)
	}
	return binary.NativeEndian.Uint32(plan[firedAt:]) != 0
}

// Passed are the points that were passed since Watch or Arm, in their order.
func (s *Shim) Passed(tb testing.TB, p Program) []Point {
	tb.Helper()
	text, err := os.ReadFile(s.log(p))
	if err != nil {
		tb.Fatal(err)
	}
	var points []Point
	for line := range strings.Lines(string(text)) {
		var at Point
		if _, err := fmt.Sscanf(line, "%d %d %d %s %s", &at.Call, &at.Time, &at.N, &at.Does, &at.What); err != nil {
			tb.Fatalf("log of %s has %q: %v", p, line, err)
		}
		points = append(points, at)
	}
	return points
}
