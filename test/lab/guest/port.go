// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab/workload"
)

// deviceTimeout is how long a device may take to appear after its driver was
// loaded.
const deviceTimeout = 30 * time.Second

// port is the virtio-serial port to the host. The file descriptor is a blocking
// one: a write waits until the host is connected, so nothing is lost.
type port struct {
	fd       int
	writing  sync.Mutex
	received []byte // what is not yet a whole line
}

// appears calls found every few milliseconds until it returns true or an error.
// It returns false if the device has not appeared in time.
func appears(found func() (bool, error)) (bool, error) {
	expired := time.After(deviceTimeout)
	for {
		if ok, err := found(); ok || err != nil {
			return ok, err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-expired:
			return false, nil
		}
	}
}

// openPort opens the port with this name when it appears.
func openPort(name string) (*port, error) {
	var device string
	ok, err := appears(func() (bool, error) {
		paths, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, path := range paths {
			if data, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(data)) == name {
				device = filepath.Join("/dev", filepath.Base(filepath.Dir(path)))
			}
		}
		return device != "", err
	})
	if err != nil {
		return nil, fmt.Errorf("list ports: %w", err)
	}
	if !ok {
		return nil, fmt.Errorf("no virtio-serial port %q: is virtio_console loaded?", name)
	}
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", device, err)
	}
	p := &port{fd: fd}
	return p, p.write([]byte{'\n'}) // ends what an earlier boot left unfinished
}

// send reports to the host. It waits while the host does not read. Any
// goroutine may call it.
func (p *port) send(r workload.Report) {
	line, err := json.Marshal(r)
	if err == nil {
		err = p.write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest: report to host:", err)
	}
}

func (p *port) write(data []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	for len(data) > 0 {
		n, err := unix.Write(p.fd, data)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("write to port: %w", err)
		}
		data = data[max(n, 0):]
	}
	return nil
}

// silence keeps all goroutines from reporting anything more. While the kernel
// shuts the disks down, their drivers fail what is in flight: that is no error
// of the disks.
func (p *port) silence() { p.writing.Lock() }

// receive waits for the next command. A line that is none, cut short by a
// reset, is passed over. Only one goroutine may call it.
func (p *port) receive() (workload.Command, error) {
	for {
		line, rest, found := bytes.Cut(p.received, []byte{'\n'})
		if found {
			p.received = rest
			var c workload.Command
			if json.Unmarshal(line, &c) == nil {
				return c, nil
			}
			continue
		}
		buf := make([]byte, 4096)
		n, err := unix.Read(p.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return workload.Command{}, fmt.Errorf("read from port: %w", err)
		case n == 0: // the host is not connected
			<-time.After(5 * time.Millisecond)
		default:
			p.received = append(p.received, buf[:n]...)
		}
	}
}
