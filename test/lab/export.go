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

// Export is a raw image that an NBD server of QEMU's serves at a Unix socket, to as many clients
// as come.
type Export struct {
	Name   string
	Socket string
	// File is what the server has its bytes in.
	File string

	server *exec.Cmd
}

// Serve serves a raw image under this name. It returns when the server takes connections.
func Serve(ctx context.Context, file, name, socket string) (*Export, error) {
	e := &Export{Name: name, Socket: socket, File: file}
	return e, e.Begin(ctx)
}

// URI is the address of the export, and the path of a volume there.
func (e *Export) URI() string { return "nbd+unix:///" + e.Name + "?socket=" + e.Socket }

// Begin begins to serve once more, after Close.
func (e *Export) Begin(ctx context.Context) error {
	e.server = exec.CommandContext(context.WithoutCancel(ctx), "qemu-nbd", "--persistent", "--shared=0", "--format=raw", "--discard=unmap",
		"--export-name="+e.Name, "--socket="+e.Socket, e.File)
	e.server.Stderr = os.Stderr
	e.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.server.Start(); err != nil {
		return fmt.Errorf("serve %s: %w", e.File, err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
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
