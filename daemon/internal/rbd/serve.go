// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

const (
	// ExportName is that of the export of a served image.
	ExportName = "image"
	// server serves an image.
	server = "qemu-storage-daemon"
	// serveTimeout is how long the server may take until it has opened the image.
	serveTimeout = 20 * time.Second
	// endTimeout is how long it may take to write what it has left, and to let go of the image.
	endTimeout = 10 * time.Second
)

// Served is a connection to a server of one image, which takes no other client and ends with it.
type Served struct {
	*net.UnixConn

	server *process
	close  sync.Once
	err    error
}

// Close ends the connection and its server, and waits until the server is gone: the image is
// nobody's then.
func (s *Served) Close() error {
	s.close.Do(func() {
		if err := s.UnixConn.Close(); !errors.Is(err, net.ErrClosed) { // or it was handed over
			s.err = err
		}
		s.err = errors.Join(s.err, s.server.end())
	})
	return s.err
}

// HandOver returns the connection as an open file for another process, and closes it in this one. Its server goes on
// until Close.
func (s *Served) HandOver() (*os.File, error) {
	f, err := s.File()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.UnixConn.Close(); err != nil {
		return nil, errors.Join(err, f.Close(), s.server.end())
	}
	return f, nil
}

// Serve has an image served. What is said there is NBD, of the export ExportName. An image that is
// served for writing has to have a lock that keeps off a server whose end was not seen.
func (h *Host) Serve(ctx context.Context, image api.RBDImage, writable bool, key *os.File) (*Served, error) {
	c, err := h.cluster(ctx, image, key)
	if err != nil {
		return nil, err
	}
	info, err := c.look(ctx, image, key)
	if err != nil {
		return nil, err
	}
	if writable && !info.Fenced {
		return nil, fmt.Errorf("it has no exclusive lock, without which a copy that was cut off could write later what it had begun: rbd feature enable %s exclusive-lock", image.Spec())
	}
	return c.serve(ctx, image, writable, key)
}

func (c Cluster) serve(ctx context.Context, image api.RBDImage, writable bool, key *os.File) (*Served, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, serveTimeout, ErrNoAnswer)
	defer cancel()
	listening, conn, err := meetingPoint()
	if err != nil {
		return nil, fmt.Errorf("make a socket for %s: %w", server, err)
	}
	p, err := start(command(context.WithoutCancel(ctx), key, server, c.arguments(image, writable)...), listening)
	if err = errors.Join(err, listening.Close()); err != nil { // of this process: the server has its own
		return nil, errors.Join(err, conn.Close())
	}
	s := &Served{UnixConn: conn, server: p}
	if err := greeted(ctx, conn); err != nil {
		err = errors.Join(context.Cause(ctx), err)
		if ended := s.Close(); ctx.Err() == nil {
			err = errors.Join(p.said(), ended) // it has ended, and says why
		}
		return nil, err
	}
	return s, nil
}

// listenerFD is the server's socket: the next file behind the key.
const listenerFD = "4"

// arguments of the server. Neither the key nor its path of a file on a disk is in them.
func (c Cluster) arguments(image api.RBDImage, writable bool) []string {
	type address struct {
		Host string `json:"host"`
		Port string `json:"port"`
	}
	var monitors []address
	for _, m := range c.Monitors {
		host, port, _ := net.SplitHostPort(m) // Check has
		monitors = append(monitors, address{host, port})
	}
	node, _ := json.Marshal(map[string]any{ // of texts and numbers
		"driver": "rbd", "node-name": "node", "pool": image.Pool, "image": image.Name, "conf": confFile(),
		"server": monitors, "user": c.User, "key-secret": "key", "discard": "unmap",
		"read-only": !writable, "auto-read-only": false, "cache": map[string]any{"direct": true},
	})
	mode := "off"
	if writable {
		mode = "on"
	}
	return []string{
		"--object", "secret,id=key,format=base64,file=" + keyPath,
		"--blockdev", string(node),
		"--nbd-server", "addr.type=fd,addr.str=" + listenerFD,
		"--export", "type=nbd,id=export,node-name=node,name=" + ExportName + ",writable=" + mode,
	}
}

// meetingPoint is a socket that is listened at, with one connection that is made already, and with no
// name any more by which anybody could make another one.
func meetingPoint() (listening *os.File, conn *net.UnixConn, err error) {
	dir, err := os.MkdirTemp("", "volferry-rbd-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	at := &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, "s")}
	l, err := net.ListenUnix("unix", at)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if conn, err = net.DialUnix("unix", nil, at); err != nil {
		return nil, nil, err
	}
	if listening, err = l.File(); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return listening, conn, nil
}

// greeted waits for the first byte of the server, and leaves it to be read: it has opened the image
// then.
func greeted(ctx context.Context, conn *net.UnixConn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		n, _, peekErr = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK)
		return !errors.Is(peekErr, unix.EAGAIN)
	})
	if err = errors.Join(err, peekErr); err == nil && n == 0 {
		err = errors.New("the server has closed the connection")
	}
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	return err
}

// process is a server that runs.
type process struct {
	cmd    *exec.Cmd
	stderr tail
	ended  chan struct{}
}

// tail keeps the end of what a server says, which may run for days: Ceph's libraries say much before
// it says why it ends.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - 4*shownBytes; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// start starts a server with one more file. It ends with this process: the kernel tells it to when the thread ends
// that has started it, so that thread is kept.
func start(cmd *exec.Cmd, file *os.File) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	cmd.Stderr = &p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // by a signal, or its stderr says why
			close(p.ended)
		}
	}()
	err := <-started
	if notThere := notInstalled(err); notThere != nil {
		err = notThere
	}
	return p, err
}

// notInstalled is the error of a server that is not on this host, nil for any other one.
func notInstalled(err error) error {
	if !errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("%w; install it with QEMU (on Debian qemu-system-common), and the RBD driver (qemu-block-extra)", err)
}

// noDriver is what QEMU says where its module for images is not installed.
const noDriver = "Unknown driver 'rbd'"

var errNoDriver = fmt.Errorf("%s has no RBD driver; install it (on Debian qemu-block-extra)", server)

// end tells the server to let go of the image, and kills it if it does not: the cluster may be away.
func (p *process) end() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	return fmt.Errorf("%s did not let go of the image within %v, and was killed", server, endTimeout)
}

// said is why a server that has ended did not serve.
func (p *process) said() error {
	<-p.ended
	text := oneLine(string(p.stderr.text))
	if strings.Contains(text, noDriver) {
		return errNoDriver
	}
	if at := strings.LastIndex(text, "}: "); at >= 0 { // behind the arguments that it repeats
		text = text[at+len("}: "):]
	}
	return fmt.Errorf("%s: %s", server, text)
}
