// SPDX-License-Identifier: Apache-2.0

// Package child runs programs on open files. A program dies with the process that has started it.
// The package must not know what the programs do.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/volferry/volferry/daemon/internal/osthread"
)

// OutputGrace is how long the outputs of an ended program may stay open.
const OutputGrace = 5 * time.Second

const firstFile = 3

// FileName is the path by which a program opens the number-th of the files that it gets: it opens
// that file, whatever is at the file's own path meanwhile.
func FileName(number int) string { return "/proc/self/fd/" + strconv.Itoa(firstFile+number) }

// Descriptor is the number of the descriptor of the number-th file that a program gets.
func Descriptor(number int) int { return firstFile + number }

// Command is a program to run.
type Command struct {
	Program string
	Args    []string
	// Env is the whole environment.
	Env []string
	// Files are open files that the program gets. FileName and Descriptor say how it finds them.
	Files []*os.File
	// Written are the numbers of Files that are open for reading, and that the program opens again
	// for writing.
	Written []int
	// Stdout and Stderr take the outputs; nil drops one.
	Stdout, Stderr io.Writer
	// DeathSignal is the signal that the program gets from the kernel when its parent process dies.
	DeathSignal syscall.Signal
	// Confine, if set, is called with the number of the process, which has just begun.
	Confine func(pid int) error
	// Restrict, if set, is called before on the thread that starts the program, and restricts that
	// thread: the program inherits it. The thread ends with the program.
	Restrict func() error
}

// Process is a program that was started.
type Process interface {
	// Signal sends a signal. The program may have ended.
	Signal(signal syscall.Signal)
	// Ended is closed when the program is gone and its outputs were taken.
	Ended() <-chan struct{}
	// Err returns how the program ended: nil, a StatusError, or why that is not known. It is asked
	// after Ended is closed.
	Err() error
}

// Starter starts a program. The context bounds the start alone. The files stay the caller's. A
// program that is not installed is ErrNotInstalled.
type Starter func(ctx context.Context, c Command) (Process, error)

// ErrNotInstalled says that a program is not installed.
var ErrNotInstalled = exec.ErrNotFound

// NotInstalled is the error for a program that is not installed.
func NotInstalled(program string) error { return &exec.Error{Name: program, Err: ErrNotInstalled} }

// StatusError says that a program has failed, and how it ended.
type StatusError syscall.WaitStatus

func (e StatusError) Error() string {
	status := syscall.WaitStatus(e)
	if status.Signaled() {
		return "signal: " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error
}

// Start starts a program as a child of this process. It is a Starter.
func Start(_ context.Context, c Command) (Process, error) {
	cmd := exec.Command(c.Program, c.Args...) //nolint:noctx // the caller ends it by a signal
	cmd.Dir, cmd.Env = "/", c.Env
	cmd.ExtraFiles = c.Files
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	cmd.WaitDelay = OutputGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: c.DeathSignal}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	// The kernel sends the death signal when the thread ends that has started the program.
	go osthread.Own(func() (reusable bool) {
		if c.Restrict != nil {
			if err := c.Restrict(); err != nil {
				started <- err
				return false
			}
		}
		err := cmd.Start()
		if err == nil && c.Confine != nil {
			if err = c.Confine(cmd.Process.Pid); err != nil {
				_ = cmd.Process.Kill() // it may have ended
				err = errors.Join(err, cmd.Wait())
			}
		}
		started <- err
		if err == nil {
			p.err = statusOf(cmd.Wait())
			close(p.ended)
		}
		return c.Restrict == nil
	})
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func statusOf(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok {
		return err
	}
	return StatusError(status)
}

func (p *process) Signal(signal syscall.Signal) { _ = p.cmd.Process.Signal(signal) }

func (p *process) Ended() <-chan struct{} { return p.ended }

func (p *process) Err() error { return p.err }

// Run runs a program to its end, or until ctx ends, when it is killed.
func Run(ctx context.Context, start Starter, c Command) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p, err := start(ctx, c)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { p.Signal(syscall.SIGKILL) })
	defer stop()
	<-p.Ended()
	return p.Err()
}
