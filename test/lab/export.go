// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Export is a raw image that an NBD server of QEMU's serves, to as many clients as come: at a Unix
// socket, or over TCP at Server, which is HOST:PORT.
type Export struct {
	Name   string
	Socket string
	Server string
	// File is what the server has its bytes in.
	File string

	server *exec.Cmd
}

// Serve serves a raw image under this name. It returns when the server takes connections.
func Serve(ctx context.Context, file, name, socket string) (*Export, error) {
	e := &Export{Name: name, Socket: socket, File: file}
	return e, e.Begin(ctx)
}

// ServeTCP is Serve at HOST:PORT.
func ServeTCP(ctx context.Context, file, name, server string) (*Export, error) {
	e := &Export{Name: name, Server: server, File: file}
	return e, e.Begin(ctx)
}

// URI is the address of the export, and the path of a volume there.
func (e *Export) URI() string {
	if e.Server != "" {
		return "nbd://" + e.Server + "/" + e.Name
	}
	return "nbd+unix:///" + e.Name + "?socket=" + e.Socket
}

// Host is that of Server.
func (e *Export) Host() string { host, _, _ := net.SplitHostPort(e.Server); return host }

// Port is that of Server.
func (e *Export) Port() string { _, port, _ := net.SplitHostPort(e.Server); return port }

// PID is the process of the server.
func (e *Export) PID() int { return e.server.Process.Pid }

// Begin begins to serve once more, after Close.
func (e *Export) Begin(ctx context.Context) error {
	network, address, at := "unix", e.Socket, []string{"--socket=" + e.Socket}
	if e.Server != "" {
		network, address, at = "tcp", e.Server, []string{"--bind=" + e.Host(), "--port=" + e.Port()}
	}
	e.server = exec.CommandContext(context.WithoutCancel(ctx), "qemu-nbd", append(at, "--persistent", "--shared=0", "--format=raw", "--discard=unmap",
		"--export-name="+e.Name, e.File)...)
	e.server.Stderr = os.Stderr
	e.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.server.Start(); err != nil {
		return fmt.Errorf("serve %s: %w", e.File, err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil && e.Server != "" {
			return conn.Close()
		}
		if err == nil {
			// QEMU runs as a user of its own, and libvirt gives nobody a socket.
			return errors.Join(conn.Close(), os.Chmod(e.Socket, 0o666)) //nolint:gosec // of a test
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("serve %s: %w", e.File, context.Cause(ctx)), e.Close())
		}
	}
}

// Close ends the server, with its connections. qemu-nbd listens before it looks for signals, and
// forgets one that comes between, so it is told until it ends.
func (e *Export) Close() error {
	if e.server == nil {
		return nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.server.Wait() // by the signal
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		_ = e.server.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
			e.server = nil
			return nil
		case <-tick.C:
		}
	}
}
