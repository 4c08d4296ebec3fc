// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/child"
	"github.com/volferry/volferry/daemon/internal/sandbox"
)

// inUnits is set while the tests of this package run with the programs in units.
const inUnits = "VOLFERRY_TEST_IN_UNITS"

// unitRole makes the test program the unit of one connection, which is its first file.
const unitRole = "VOLFERRY_TEST_UNIT"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(unitRole) != "":
		os.Exit(beUnit())
	case os.Getenv(inUnits) != "":
		os.Exit(runInUnits(m))
	}
	os.Exit(m.Run())
}

func runInUnits(m *testing.M) int {
	dir, err := os.MkdirTemp("", "volferry-units-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	u, err := newUnits(filepath.Join(dir, "images.sock"))
	if err == nil {
		err = RunInUnit(context.Background(), sandbox.Programs{Socket: u.socket, Lock: filepath.Join(dir, "lock")})
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	_, _ = fmt.Fprintln(os.Stdout, "units:", len(u.started)) // for the test that started this process
	return code
}

func beUnit() int {
	conn, err := net.FileConn(os.NewFile(3, "connection"))
	if err == nil {
		err = RunFor(context.Background(), conn.(*net.UnixConn)) //nolint:errcheck // it is one
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// units starts a process for each connection to a socket, as systemd does.
type units struct {
	socket  string
	l       *net.UnixListener
	started chan *os.Process
}

func newUnits(socket string) (*units, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	u := &units{socket, l, make(chan *os.Process, 1000)}
	go u.serve()
	return u, err
}

func (u *units) serve() {
	for {
		conn, err := u.l.AcceptUnix()
		if err != nil {
			return
		}
		f, err := conn.File()
		if err == nil {
			err = conn.Close()
		}
		if err != nil {
			panic(err)
		}
		cmd := exec.Command(os.Args[0]) //nolint:noctx // it ends with its connection
		cmd.Env = append(os.Environ(), unitRole+"=1")
		cmd.ExtraFiles = []*os.File{f}
		cmd.Stderr = os.Stderr
		if err := errors.Join(cmd.Start(), f.Close()); err != nil {
			panic(err)
		}
		u.started <- cmd.Process
		go func() { _ = cmd.Wait() }()
	}
}

// unitsOf returns units that run until the test ends.
func unitsOf(t *testing.T) *units {
	t.Helper()
	u, err := newUnits(filepath.Join(t.TempDir(), "images.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.l.Close() })
	return u
}

// inUnit runs the programs in units until the test ends.
func inUnit(t *testing.T) <-chan *os.Process {
	t.Helper()
	u := unitsOf(t)
	before := unit.Load()
	t.Cleanup(func() { unit.Store(before) })
	if err := RunInUnit(t.Context(), sandbox.Programs{Socket: u.socket, Lock: filepath.Join(t.TempDir(), "lock")}); err != nil {
		t.Fatal(err)
	}
	return u.started
}

// Runs tests of this package again, with the programs in units.
func TestImagesAreTheSameByProgramsInUnits(t *testing.T) {
	const which = "Served|Serve$|Swapped|PassphraseIsInNo|AChild|Fail|Commit|ThatIsNotInstalled|Killed|Stops"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-test.run", which, "-test.skip", "Unit|DeadDaemon")
	cmd.Env = append(os.Environ(), inUnits+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	_, count, _ := strings.Cut(string(out), "units: ")
	if n, err := strconv.Atoi(strings.TrimSpace(count)); err != nil || n < 10 {
		t.Errorf("it proves nothing: %d units were started (%v)\n%s", n, err, out)
	}
}

// slow installs a qemu-img that reports its start and does not end.
func slow(t *testing.T) (progress func(float64), begun <-chan struct{}) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "qemu-img"), []byte("#!/bin/sh\necho '(50.0/100%)'\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	did := make(chan struct{}, 1)
	return func(float64) { did <- struct{}{} }, did
}

func TestAProgramInAUnitIsKilledByACancel(t *testing.T) {
	inUnit(t)
	progress, begun := slow(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := run(ctx, []string{"info"}, childOptions{progress: progress}); err != context.Canceled { //nolint:errorlint // it is the very one
		t.Errorf("got %v", err)
	}
}

func TestAProgramWhoseUnitIsKilledHasFailedAndIsGone(t *testing.T) {
	started := inUnit(t)
	progress, begun := slow(t)
	go func() {
		<-begun
		_ = (<-started).Kill()
	}()
	if _, err := run(t.Context(), []string{"info"}, childOptions{progress: progress}); err == nil || !strings.Contains(err.Error(), "unit of the program has ended") {
		t.Errorf("got %v", err)
	}
}

func TestAProgramThatIsNoneOfQEMUsIsNotRunInAUnit(t *testing.T) {
	inUnit(t)
	_, err := unit.Load().Start(t.Context(), child.Command{Program: "/bin/true"})
	if err == nil || !strings.Contains(err.Error(), "not one that is run here") {
		t.Errorf("got %v", err)
	}
}

// A new daemon waits for the ending programs of a killed one.
func TestAProgramOfADeadDaemonHasEndedBeforeTheNextOneBegins(t *testing.T) {
	const role = "VOLFERRY_TEST_DAEMON"
	if socket, lock, ok := strings.Cut(os.Getenv(role), " "); ok {
		if err := RunInUnit(t.Context(), sandbox.Programs{Socket: socket, Lock: lock}); err != nil {
			t.Fatal(err)
		}
		_, _ = run(t.Context(), []string{"info"}, childOptions{progress: func(float64) { _, _ = os.Stdout.WriteString("begun\n") }})
		return
	}
	u := unitsOf(t)
	lock := filepath.Join(t.TempDir(), "lock")
	slow(t)
	daemon := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	daemon.Env = append(os.Environ(), role+"="+u.socket+" "+lock)
	out, err := daemon.StdoutPipe()
	if err == nil {
		err = daemon.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 6))
	}
	if err != nil {
		t.Fatal(err)
	}
	// The stopped unit cannot kill its program yet when the daemon dies.
	helper := <-u.started
	program, err := unix.PidfdOpen(childOf(t, helper.Pid), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(program) //nolint:errcheck // it only polls
	if err := helper.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for stopped := false; !stopped; {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", helper.Pid))
		if err != nil {
			t.Fatal(err)
		}
		stopped = strings.Contains(string(status), "State:\tT")
	}
	_ = daemon.Process.Kill()
	_ = daemon.Wait()
	next := sandbox.Programs{Socket: u.socket, Lock: lock}
	soon, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	if err := next.Await(soon); err == nil || !strings.Contains(err.Error(), "runs still") {
		t.Errorf("the next daemon begins beside the program of the dead one: %v", err)
	}
	if err := helper.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := next.Await(t.Context()); err != nil {
		t.Error(err)
	}
	// Its files are closed a moment before its parent can wait for it.
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(program), Events: unix.POLLIN}}, int(time.Minute.Milliseconds())); err != nil || n != 1 {
		t.Errorf("the program runs still: %d, %v", n, err)
	}
}
