// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/child"
)

const sh = "/bin/sh"

// programsOf returns programs that RunProgram runs, one for each connection, until the test ends.
// It skips the test if the kernel has no Landlock.
func programsOf(t *testing.T) Programs {
	t.Helper()
	l, socket := listen(t)
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go func() { _ = RunProgram(context.Background(), conn, []string{sh}, nil) }() // the caller has the error too
		}
	}()
	return Programs{Socket: socket, Lock: filepath.Join(t.TempDir(), "lock"), Unrestricted: func() {
		t.Skip("SKIPPED: this kernel has no Landlock")
	}}
}

// printed returns the output of a script.
func printed(t *testing.T, p Programs, c child.Command) string {
	t.Helper()
	var out, failed bytes.Buffer
	c.Program, c.Stdout, c.Stderr, c.Env = sh, &out, &failed, []string{"PATH=/usr/bin:/bin"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := child.Run(ctx, p.Start, c); err != nil {
		t.Fatalf("%v: %s", err, failed.String())
	}
	return out.String()
}

func openFor(t *testing.T, path, text string, flags int) *os.File {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// All programs are root's, so the kernel would let each have the open files of another.
func TestAProgramReachesNothingOfAnotherProgram(t *testing.T) {
	p := programsOf(t)
	dir := t.TempDir()
	read, write := io.Pipe()
	other, err := p.Start(t.Context(), child.Command{
		Program: sh, Args: []string{"-c", "echo $$; exec sleep 600"}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: write,
		Files: []*os.File{openFor(t, filepath.Join(dir, "secret"), "the other's\n", os.O_RDWR)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		other.Signal(syscall.SIGKILL)
		<-other.Ended()
	})
	var pid int
	if _, err := fmt.Fscan(read, &pid); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, read) }()
	out := printed(t, p, child.Command{
		Args: []string{"-c", fmt.Sprintf(`
cat /proc/self/fd/3
cat /proc/%d/fd/3 || echo other: no
readlink /proc/$PPID/fd/0 || echo parent: no`, pid)},
		Files: []*os.File{openFor(t, filepath.Join(dir, "own"), "my own\n", os.O_RDONLY)},
	})
	if !strings.Contains(out, "my own") || strings.Contains(out, "the other's") || !strings.Contains(out, "other: no") || !strings.Contains(out, "parent: no") {
		t.Errorf("the program printed %s", out)
	}
}

func TestAProgramWritesWhatItWasGivenForThatAlone(t *testing.T) {
	p := programsOf(t)
	dir := t.TempDir()
	open := func(name string, flags int) *os.File { return openFor(t, filepath.Join(dir, name), "before", flags) }
	out := printed(t, p, child.Command{
		Args: []string{"-c", `
for n in 3 4 5 6; do echo after >/proc/self/fd/$n || echo $n: no; done
echo after >` + dir + `/apart || echo apart: no
echo after >/dev/null || echo null: no`},
		Files:   []*os.File{open("read", os.O_RDONLY), open("written", os.O_RDONLY), open("both", os.O_RDWR)},
		Written: []int{1},
	})
	var refused []string
	for line := range strings.Lines(out) {
		if strings.HasSuffix(line, ": no\n") {
			refused = append(refused, strings.TrimSuffix(line, ": no\n"))
		}
	}
	if got := strings.Join(refused, " "); got != "3 6 apart" { // 6 is its lock
		t.Errorf("it cannot write to %q: %s", got, out)
	}
	for name, want := range map[string]string{"read": "before", "written": "after\n", "both": "after\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
}

// A program with its lock open for writing could fill the filesystem of the journal.
func TestTheLockOfAProgramIsOpenForReadingAlone(t *testing.T) {
	p := programsOf(t)
	out := printed(t, p, child.Command{Args: []string{"-c", "echo more >&3 || echo no"}})
	if st, err := os.Stat(p.Lock); err != nil || st.Size() != 0 || !strings.Contains(out, "no") {
		t.Errorf("%v, %v: %s", st, err, out)
	}
}
