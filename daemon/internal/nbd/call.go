// SPDX-License-Identifier: Apache-2.0

package nbd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Export is an open export over one connection. Its methods may be called concurrently, and their
// requests run in parallel. When the connection is lost, all methods fail with an error that wraps
// ENOLINK.
type Export struct {
	c      *client
	conn   net.Conn
	ctx    context.Context
	cancel func() bool
	ended  chan struct{}

	structured bool
	stall      time.Duration // 0: no limit
	answers    atomic.Uint64
	stalled    atomic.Bool

	mu      sync.Mutex
	calls   map[uint64]*call
	lost    error // why no more answers come
	leaving bool
}

type call struct {
	command uint16
	off     int64
	n       int64
	p       []byte
	filled  spans
	extents map[string][]extent // by meta context
	err     error
	done    chan struct{}
}

func (e *Export) finish(cookie uint64, c *call, err error) {
	delete(e.calls, cookie)
	if c.err == nil {
		c.err = err
	}
	close(c.done)
}

func (e *Export) find(cookie uint64) (*call, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.calls[cookie]; c != nil {
		return c, nil
	}
	return nil, errors.New("the server answers what was not asked")
}

func (e *Export) end(cookie uint64, c *call) {
	var err error
	if n := c.filled.bytes(); c.command == commandRead && n != c.n {
		err = fmt.Errorf("the server has answered with %d of %d bytes: %w", n, c.n, unix.EIO)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.finish(cookie, c, err)
}

// serverError returns the error in a server's answer. The protocol's error numbers are Linux's.
func serverError(code uint32, message []byte) error {
	err := error(unix.Errno(code))
	if code == 0 || code > 4095 {
		err = fmt.Errorf("error %s: %w", strconv.FormatUint(uint64(code), 10), unix.EIO)
	}
	if len(message) == 0 {
		return fmt.Errorf("the NBD server answers: %w", err)
	}
	return fmt.Errorf("the NBD server answers %q: %w", message, err)
}
