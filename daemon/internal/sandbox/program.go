// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/child"
)

// The first files of a request to run a program. The program's own files follow them.
const (
	fileHeld = iota
	fileStdout
	fileStderr
	ownFiles
)

const programStartTimeout = time.Minute

// Programs runs programs through `volferryd images`, each in its own systemd unit.
type Programs struct {
	// Each connection to Socket starts such a unit.
	Socket string
	// Lock is the path of a file. Each program holds a shared lock on the file until it is gone,
	// and Await waits for these locks.
	Lock string
	// Unrestricted, if not nil, is called for each program that runs without Landlock because the
	// kernel has none.
	Unrestricted func()
}

// Start implements child.Starter. It ignores DeathSignal and Confine: the program is killed when
// this process dies, and `volferryd images` confines it.
func (p Programs) Start(ctx context.Context, c child.Command) (child.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, programStartTimeout)
	defer cancel()
	held, err := p.lock(unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer func() { _ = held.Close() }() // the program has it
	conn, err := connectTo(ctx, p.Socket)
	if err != nil {
		return nil, p.noUnit(err)
	}
	r := &remoteProgram{conn: conn, ended: make(chan struct{})}
	if err := r.prepare(ctx, c, held); err != nil {
		return nil, errors.Join(p.noUnit(err), conn.Close()) // the end of the connection keeps the program from beginning
	}
	out, _, err := exchange(ctx, conn, request{Call: callBegin})
	switch {
	case err != nil:
		err = errors.Join(unitEnded(err), conn.Close()) // if the program has begun, the end of the connection kills it
		r.taken.Wait()
	case out.NotInstalled:
		err = errors.Join(child.NotInstalled(c.Program), conn.Close())
	default:
		err = out.err()
	}
	if err != nil {
		return nil, err
	}
	if out.Unrestricted && p.Unrestricted != nil {
		p.Unrestricted()
	}
	go r.follow()
	return r, nil
}

func (p Programs) noUnit(err error) error {
	// The error is not wrapped: its "no such file" does not concern an image.
	return fmt.Errorf("no answer at %s (%v); `systemctl status volferryd-images.socket 'volferryd-images@*'` says why", p.Socket, err) //nolint:errorlint // see above
}

func unitEnded(err error) error {
	return fmt.Errorf("the unit of the program has ended before it: %w", err)
}

// prepare sends the request to run the program. The program starts only after a second message
// (callBegin): a request may stay in the socket's queue until its caller has given up.
func (r *remoteProgram) prepare(ctx context.Context, c child.Command, held *os.File) error {
	stdout, err := r.take(c.Stdout)
	if err != nil {
		return err
	}
	defer func() { _ = stdout.Close() }() // the program has it
	stderr, err := r.take(c.Stderr)
	if err != nil {
		return err
	}
	defer func() { _ = stderr.Close() }()
	in := request{Call: callRun, Program: &program{c.Program, c.Args, c.Env, c.Written}}
	out, _, err := exchange(ctx, r.conn, in, slices.Concat([]*os.File{held, stdout, stderr}, c.Files)...)
	return cmp.Or(err, out.err())
}

// Await returns when no program of an earlier, dead process runs any more. No other process may
// use the same Lock.
func (p Programs) Await(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() {
		f, err := p.lock(unix.LOCK_EX)
		if err == nil {
			err = f.Close()
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("a program of QEMU's that an earlier volferryd has started runs still; its storage may not answer: `systemctl list-units 'volferryd-images@*'` names it (%w)", ctx.Err())
	}
}

// lock opens the file Lock and locks it. The lock ends when all processes have closed the file. A
// program inherits the file, and cannot write to it.
func (p Programs) lock(how int) (*os.File, error) {
	f, err := os.OpenFile(p.Lock, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", p.Lock, err), f.Close())
	}
	return f, nil
}

type remoteProgram struct {
	conn    *net.UnixConn
	outputs []*os.File
	taken   sync.WaitGroup
	ended   chan struct{}
	err     error
}

func (r *remoteProgram) take(w io.Writer) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.outputs = append(r.outputs, read)
	r.taken.Go(func() {
		if w == nil {
			w = io.Discard
		}
		_, _ = io.Copy(w, read) // until all writers are closed, or read is closed
		_ = read.Close()
	})
	return write, nil
}

func (r *remoteProgram) follow() {
	defer close(r.ended)
	var out answer
	_, err := receive(r.conn, &out)
	if err == nil {
		err = out.err()
	}
	switch {
	case err != nil:
		// Only the end of the program's outputs shows its end.
		r.err = unitEnded(err)
		_ = r.conn.Close()
	default:
		if out.Status != 0 {
			r.err = child.StatusError(out.Status)
		}
		grace := time.AfterFunc(child.OutputGrace, func() {
			for _, f := range r.outputs {
				_ = f.Close() // leftover processes of the program keep them open
			}
		})
		defer grace.Stop()
	}
	r.taken.Wait()
	_ = r.conn.Close()
}

func (r *remoteProgram) Signal(signal syscall.Signal) {
	if err := send(r.conn, request{Call: callSignal, Signal: int(signal)}); err != nil && signal == syscall.SIGKILL {
		_ = r.conn.CloseWrite() // this also kills the program
	}
}

func (r *remoteProgram) Ended() <-chan struct{} { return r.ended }

func (r *remoteProgram) Err() error { return r.err }

// RunProgram runs one of the named programs for the process at the other end of a connection, and
// returns when the program has ended. It kills the program at the end of the connection.
func RunProgram(ctx context.Context, conn *net.UnixConn, programs []string, confine func(pid int) error) (err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := checkPeer(conn); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	p, restricted, err := startProgram(ctx, conn, programs, confine)
	if err != nil {
		refused := failed(err)
		refused.NotInstalled = errors.Is(err, child.ErrNotInstalled)
		return unlessGone(send(conn, refused))
	}
	err = cmp.Or(conn.SetDeadline(time.Time{}), send(conn, answer{Unrestricted: !restricted}))
	if err != nil {
		p.Signal(syscall.SIGKILL)
		<-p.Ended()
		return unlessGone(err)
	}
	go passSignals(conn, p)
	<-p.Ended()
	var status child.StatusError
	if err := p.Err(); err != nil && !errors.As(err, &status) {
		return unlessGone(send(conn, failed(err)))
	}
	return unlessGone(send(conn, answer{Status: uint32(status)}))
}

// unlessGone drops the error of a closed connection: a daemon may die at any time.
func unlessGone(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}

// startProgram reads the program to run, and starts it once the other side confirms that it still
// waits. After that only the program has its output files open.
func startProgram(ctx context.Context, conn *net.UnixConn, programs []string, confine func(pid int) error) (_ child.Process, restricted bool, err error) {
	var in, begin request
	files, err := receiveFiles(conn, &in)
	defer closeAll(files)
	switch {
	case err != nil:
		return nil, false, err
	case in.Call != callRun || in.Program == nil:
		return nil, false, fmt.Errorf("there is no call %q here", in.Call)
	case !slices.Contains(programs, in.Program.Name):
		return nil, false, fmt.Errorf("program %q is not one that is run here", in.Program.Name)
	case len(files) < ownFiles:
		return nil, false, errors.New("the program has no outputs")
	}
	if err := send(conn, answer{}); err != nil {
		return nil, false, err
	}
	if _, err := receive(conn, &begin); err != nil {
		return nil, false, err
	}
	if begin.Call != callBegin {
		return nil, false, fmt.Errorf("there is no call %q here", begin.Call)
	}
	given := files[ownFiles:]
	p, err := child.Start(ctx, child.Command{
		Program: in.Program.Name, Args: in.Program.Args, Env: in.Program.Env,
		Stdout: files[fileStdout], Stderr: files[fileStderr],
		// The program holds the lock until it is gone.
		Files:       append(slices.Clone(given), files[fileHeld]),
		DeathSignal: syscall.SIGKILL, Confine: confine,
		Restrict: func() (err error) {
			restricted, err = restrictThread(given, in.Program.Written)
			return err
		},
	})
	return p, restricted, err
}

func passSignals(conn *net.UnixConn, p child.Process) {
	for {
		var in request
		files, err := receiveFiles(conn, &in)
		closeAll(files)
		if err != nil {
			p.Signal(syscall.SIGKILL)
			return
		}
		if in.Call == callSignal {
			p.Signal(syscall.Signal(in.Signal))
		}
	}
}
