// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/volferry/volferry/test/lab"
)

// Root is the top of the source tree that the working directory is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the source tree: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == "/" {
			return "", errors.New("find the source tree: no go.mod above the working directory")
		}
	}
}

// program is one of Volferry's daemons as a child process.
type program struct {
	name   string
	log    string
	cmd    *exec.Cmd
	exited chan struct{}
	notify *net.UnixConn
}

// startTimeout bounds the start of a daemon, on a busy machine.
const startTimeout = time.Minute

// start starts a program with its log appended to a file. It dies with us.
func start(ctx context.Context, path, log string, env []string, args ...string) (*program, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	defer func() { _ = out.Close() }()
	p := &program{name: filepath.Base(path), log: log, exited: make(chan struct{})}
	// Readiness by systemd's protocol, as in production.
	address := &net.UnixAddr{Name: fmt.Sprintf("@volferry-site-%d-%d", os.Getpid(), time.Now().UnixNano()), Net: "unixgram"}
	if p.notify, err = net.ListenUnixgram("unixgram", address); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), path, args...)
	p.cmd.Env = append(append(os.Environ(), "NOTIFY_SOCKET="+address.Name), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = child()
	if err := startAsItsUnit(p.cmd, timerSlack(p.name)); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// child makes a program die with us, and keeps an interrupt from the terminal to
// us alone, who know in which order to end things.
func child() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// untilReady returns when the program has said READY=1.
func (p *program) untilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lab.Limit(startTimeout))
	defer cancel()
	defer func() { _ = p.notify.Close() }()
	ready := make(chan struct{})
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := p.notify.Read(buf)
			if err != nil {
				return
			}
			if strings.Contains(string(buf[:n]), "READY=1") {
				close(ready)
				return
			}
		}
	}()
	select {
	case <-ready:
		return nil
	case <-p.exited:
		return fmt.Errorf("start %s: it exited: %s\n%s", p.name, p.cmd.ProcessState, tail(p.log))
	case <-ctx.Done():
		return fmt.Errorf("start %s: it does not get ready: %w", p.name, ctx.Err())
	}
}

// kill kills the program with SIGKILL and waits until it is gone.
func (p *program) kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.exited
}

// stop asks the program to end, and kills it if it does not.
func (p *program) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(lab.Limit(startTimeout)):
		p.kill()
	}
}

// wait returns when the program is gone.
func (p *program) wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %s to end: %w", p.name, ctx.Err())
	}
}

// pid is the program's process.
func (p *program) pid() int { return p.cmd.Process.Pid }

// tail is the end of a log, as much as there is.
func tail(path string) []byte {
	const end = 8 << 10
	text, _ := os.ReadFile(path)
	return text[max(0, len(text)-end):]
}
