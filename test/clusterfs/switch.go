// SPDX-License-Identifier: Apache-2.0

package clusterfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// maxFrame is more than a frame of Ethernet has.
const maxFrame = 1 << 16

// Switch is the network between nodes: each QEMU connects to it (libvirt's interface of type
// client), also a new one in the place of one that was saved.
type Switch struct {
	listener net.Listener
	mu       sync.Mutex
	ports    map[net.Conn]bool
	ended    sync.WaitGroup
}

// NewSwitch starts a switch on a port of the loopback device.
func NewSwitch() (*Switch, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with Close
	if err != nil {
		return nil, fmt.Errorf("start a switch: %w", err)
	}
	s := &Switch{listener: l, ports: map[net.Conn]bool{}}
	s.ended.Go(s.accept)
	return s, nil
}

// Port is the TCP port that nodes connect to.
func (s *Switch) Port() int { return s.listener.Addr().(*net.TCPAddr).Port } //nolint:errcheck,forcetypeassert // it is TCP

// Close ends the switch and all connections.
func (s *Switch) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	for port := range s.ports {
		err = errors.Join(err, port.Close())
	}
	s.mu.Unlock()
	s.ended.Wait()
	return err
}

func (s *Switch) accept() {
	for {
		port, err := s.listener.Accept()
		if err != nil {
			return // it is closed
		}
		s.mu.Lock()
		s.ports[port] = true
		s.mu.Unlock()
		s.ended.Go(func() { s.forward(port) })
	}
}

// forward passes all frames of a port on to the others, until it is closed. A frame has its length
// before it.
func (s *Switch) forward(port net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.ports, port)
		s.mu.Unlock()
		_ = port.Close() // Close may have done so
	}()
	frame := make([]byte, 4+maxFrame)
	for {
		if _, err := io.ReadFull(port, frame[:4]); err != nil {
			return
		}
		length := binary.BigEndian.Uint32(frame)
		if length > maxFrame {
			return
		}
		if _, err := io.ReadFull(port, frame[4:4+length]); err != nil {
			return
		}
		s.mu.Lock()
		for other := range s.ports {
			if other != port {
				_, _ = other.Write(frame[:4+length]) // one that is gone says so where it is read
			}
		}
		s.mu.Unlock()
	}
}
