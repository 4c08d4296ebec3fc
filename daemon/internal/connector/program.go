// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/osthread"
	"github.com/volferry/volferry/internal/shell"
)

// DefaultDir is where connectors are installed. Only make install sets another directory, by the
// linker.
var DefaultDir = "/usr/libexec/volferry/connectors"

const (
	maxTextBytes = 64 << 10
	stderrBytes  = 1 << 10
	killGrace    = 10 * time.Second
)

// Timeout is how long a verb may take before the program is signalled to end. Even an inspection
// may have to wait for another tool's lock.
func Timeout(verb string) time.Duration {
	if verb == VerbInspect {
		return time.Minute
	}
	return 2 * time.Minute
}

// RunTimeout is the longest duration of Run, including the forced end of a program.
func RunTimeout(verb string) time.Duration { return Timeout(verb) + killGrace + time.Second }

// Find returns the path of a connector in dir. It refuses a program that another user than root or
// this process's user could have installed or changed.
func Find(dir, name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("connector %s: %w; connectors are installed in %s", name, err, dir)
	}
	if err := cmp.Or(checkOwners(path), checkOwners(real)); err != nil {
		return "", fmt.Errorf("connector %s: %w", name, err)
	}
	st, err := os.Stat(real)
	switch {
	case err != nil:
		return "", fmt.Errorf("connector %s: %w", name, err)
	case !st.Mode().IsRegular() || st.Mode().Perm()&0o100 == 0:
		return "", fmt.Errorf("connector %s: %s is no program", name, real)
	}
	return real, nil
}

func checkOwners(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is no absolute path", path)
	}
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return &os.PathError{Op: "lstat", Path: at, Err: err}
		}
		if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
			return fmt.Errorf("%s belongs to user %d, who could put another program there; give it to root", at, st.Uid)
		}
		// In a sticky directory no user can replace another user's file.
		sticky := st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&unix.S_ISVTX != 0
		if st.Mode&unix.S_IFMT != unix.S_IFLNK && st.Mode&0o022 != 0 && !sticky {
			return fmt.Errorf("%s may be written by others than its owner, who could put another program there; `%s`", at, shell.Line("chmod", "go-w", "--", at))
		}
		if at == "/" {
			return nil
		}
	}
}

// BrokenError reports that a program has not answered according to the protocol. The request may
// have been done or not.
type BrokenError struct {
	Verb string
	Err  error
	// Stderr is the end of the program's stderr.
	Stderr string
}

func (e *BrokenError) Error() string {
	text := fmt.Sprintf("%s: %v", e.Verb, e.Err)
	if e.Stderr != "" {
		text += ": " + e.Stderr
	}
	return text
}

func (e *BrokenError) Unwrap() error { return e.Err }

var errTimeout = errors.New("it did not end in time, and was killed")

// Run runs the program at path for one verb. The error is the *Error of its answer, or a
// *BrokenError. The program has no terminal, no open file, only PATH and LC_ALL in its environment,
// and its own process group, which is killed with it.
func Run(ctx context.Context, path string, in Request) (Answer, error) {
	in.Protocol = Protocol
	return run(ctx, path, in, Timeout(in.Verb), killGrace)
}

// Try is Run with the request unchanged, whatever its protocol: the test kit sends invalid
// requests.
func Try(ctx context.Context, path string, in Request) (Answer, error) {
	return run(ctx, path, in, Timeout(in.Verb), killGrace)
}

func run(ctx context.Context, path string, in Request, timeout, grace time.Duration) (Answer, error) {
	if in.Options == nil {
		in.Options = map[string]string{}
	}
	text, err := json.Marshal(in)
	if err != nil {
		return Answer{}, &BrokenError{Verb: in.Verb, Err: err}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	stdout, stderr := &head{}, &head{}
	cmd := exec.CommandContext(ctx, path)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), stdout, stderr
	// SIGTERM first, for a tool that is changing its metadata.
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = grace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = runGroup(cmd)
	broken := func(err error) (Answer, error) {
		return Answer{}, &BrokenError{Verb: in.Verb, Err: err, Stderr: stderr.end()}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return broken(context.Cause(ctx))
	case err != nil:
		return broken(err)
	case stdout.over:
		return broken(fmt.Errorf("its answer has more than %d bytes", maxTextBytes))
	}
	out, err := ReadAnswer(in, stdout.kept)
	var said *Error
	if err != nil && !errors.As(err, &said) {
		return broken(err)
	}
	return out, err
}

// runGroup runs a program, and then kills the rest of its process group. Until the program ends,
// it occupies the thread that starts the program, since the kernel sends the death signal when
// that thread ends.
func runGroup(cmd *exec.Cmd) (err error) {
	osthread.Own(func() (reusable bool) {
		if err = cmd.Start(); err != nil {
			return true
		}
		// Leftover processes must not work during the next verb. Until the program is waited for,
		// its number cannot be another group's.
		err = waitForExit(cmd.Process.Pid)
		if killErr := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); killErr != nil && !errors.Is(killErr, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("end what it has started: %w", killErr))
		}
		err = errors.Join(cmd.Wait(), err)
		return true
	})
	return err
}

// waitForExit returns when a child has ended, without reaping it.
func waitForExit(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

type head struct {
	kept []byte
	over bool
}

func (h *head) Write(p []byte) (int, error) {
	room := maxTextBytes - len(h.kept)
	h.over = h.over || len(p) > room
	h.kept = append(h.kept, p[:min(room, len(p))]...)
	return len(p), nil
}

func (h *head) end() string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(h.kept), "?")), " ")
	if len(text) > stderrBytes {
		text = "…" + strings.ToValidUTF8(text[len(text)-stderrBytes:], "")
	}
	return text
}
