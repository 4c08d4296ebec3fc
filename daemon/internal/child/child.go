// SPDX-License-Identifier: Apache-2.0

// Package child runs programs on open files. A program dies with the process that has started it.
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

// FileName returns the path at which a program opens the file with this number. The path leads to
// the passed file, even if another file is at the passed file's own path by then.
func FileName(number int) string { return "/proc/self/fd/" + strconv.Itoa(firstFile+number) }

// Descriptor returns the descriptor that a program gets for the file with this number.
func Descriptor(number int) int { return firstFile + number }

// Command is a program to run.
type Command struct {
	Program string
	Args    []string
	// Env is the whole environment.
	Env []string
	// Files are open files for the program. It finds them by FileName and Descriptor.
	Files []*os.File
	// Written are the numbers of Files that are open for reading, and that the program opens again
	// for writing.
	Written []int
	// Stdout and Stderr get the outputs. An output is dropped if its writer is nil.
	Stdout, Stderr io.Writer
	// DeathSignal is the signal that the program gets from the kernel when its parent process dies.
	DeathSignal syscall.Signal
	// Confine, if not nil, is called with the id of the process when it has just begun.
	Confine func(pid int) error
	// Restrict, if not nil, is called on the thread that will start the program, and restricts
	// this thread: the program inherits the restrictions. The thread ends with the program.
	Restrict func() error
}

// Process is a program that was started.
type Process interface {
	// Signal sends a signal. The program may have ended.
	Signal(signal syscall.Signal)
	// Ended returns a channel that is closed when the program is gone and its outputs were read.
	Ended() <-chan struct{}
	// Err returns how the program ended: nil, a StatusError, or why that is unknown. Call it after
	// Ended is closed.
	Err() error
}

// Starter starts a program. ctx limits only the start. The caller keeps the files, and closes
// them. The error is ErrNotInstalled if the program is not installed.
type Starter func(ctx context.Context, c Command) (Process, error)

// ErrNotInstalled means that a program is not installed.
var ErrNotInstalled = exec.ErrNotFound

// NotInstalled returns the error for a program that is not installed.
func NotInstalled(program string) error { return &exec.Error{Name: program, Err: ErrNotInstalled} }

// StatusError means that a program has failed. It has the program's wait status.
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

// Start starts a program as a child of this process. It implements Starter.
func Start(_ context.Context, c Command) (Process, error) {
	cmd := exec.Command(c.Program, c.Args...) //nolint:noctx // the caller ends it by a signal
	cmd.Dir, cmd.Env = "/", c.Env
	cmd.ExtraFiles = c.Files
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	cmd.WaitDelay = OutputGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: c.DeathSignal}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	// The kernel sends the death signal when the thread that has started the program ends.
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

// Run runs a program to its end. When ctx ends, it kills the program.
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
