// SPDX-License-Identifier: Apache-2.0

package nbd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/medium"
)

// openTimeout is how long a server may take to open an export. A server for a single client lets
// all other clients wait.
const openTimeout = 5 * time.Second

// StallTimeout is how long a server may take to read a request, and how long it may send nothing
// while a request has no answer.
const StallTimeout = time.Minute

const maxTransferBytes = 32 << 20

// ErrNoAnswer means that a server does not answer, perhaps after it has accepted the connection.
var ErrNoAnswer = errors.New("the server does not answer; it has to take several clients at once (qemu-nbd --shared=8)")

// Dial connects to a server at HOST:PORT.
type Dial func(ctx context.Context, address string) (net.Conn, error)

func connect(ctx context.Context, dial Dial, address medium.NBDExport) (net.Conn, error) {
	var here net.Dialer
	switch {
	case address.Server == "":
		return here.DialContext(ctx, "unix", address.Socket)
	case dial == nil:
		return here.DialContext(ctx, "tcp", address.Server)
	}
	return dial(ctx, address.Server)
}

// Open opens the export at an address. The export is lost when the server sends nothing for
// StallTimeout while a request has no answer, or when ctx ends. dial connects to servers over TCP;
// with nil this process connects itself, which a sandboxed process cannot do.
func Open(ctx context.Context, dial Dial, address medium.NBDExport) (*Export, error) {
	opening, cancel := context.WithTimeoutCause(ctx, openTimeout, ErrNoAnswer)
	defer cancel()
	fail := func(err error) (*Export, error) {
		if opening.Err() != nil {
			err = context.Cause(opening)
		}
		return nil, fmt.Errorf("open NBD export %q at %s: %w", address.Name, address.Socket+address.Server, err)
	}
	conn, err := connect(opening, dial, address)
	if err != nil {
		return fail(err)
	}
	e, err := openOn(ctx, opening, conn, address.Name, allocationContext)
	if err != nil {
		return fail(err)
	}
	e.stall = StallTimeout
	return e, nil
}

// OpenOn opens an export on a connection, and closes the connection with the export. The export is
// lost when ctx ends, when the server does not read a request within stall, or when it sends
// nothing for stall while a request has no answer.
func OpenOn(ctx context.Context, conn net.Conn, name string, stall time.Duration) (*Export, error) {
	return openBounded(ctx, conn, name, stall, allocationContext)
}

// OpenLayered opens an export as OpenOn does. The server must be a QEMU that reports which layer
// of its image has a block (Own).
func OpenLayered(ctx context.Context, conn net.Conn, name string, stall time.Duration) (*Export, error) {
	e, err := openBounded(ctx, conn, name, stall, allocationContext, depthContext)
	if err == nil && !e.c.has(depthContext) {
		err = errors.Join(fmt.Errorf("NBD export %q does not say which layer of its image has a block: %w", name, errors.ErrUnsupported), e.Close())
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

func openBounded(ctx context.Context, conn net.Conn, name string, stall time.Duration, metaContexts ...string) (*Export, error) {
	opening, cancel := context.WithTimeoutCause(ctx, openTimeout, ErrNoAnswer)
	defer cancel()
	e, err := openOn(ctx, opening, conn, name, metaContexts...)
	if err != nil {
		if opening.Err() != nil {
			err = context.Cause(opening)
		}
		return nil, fmt.Errorf("open NBD export %q: %w", name, err)
	}
	e.stall = stall
	return e, nil
}

func openOn(ctx, opening context.Context, conn net.Conn, name string, metaContexts ...string) (*Export, error) {
	e := &Export{c: newClient(conn), conn: conn, ctx: ctx, ended: make(chan struct{}), calls: map[uint64]*call{}}
	stop := context.AfterFunc(opening, func() { _ = conn.Close() })
	err := e.negotiate(name, metaContexts)
	if err == nil && !stop() {
		err = context.Cause(opening)
	}
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, err
	}
	e.cancel = context.AfterFunc(ctx, func() { _ = conn.Close() })
	go e.receive()
	return e, nil
}

const (
	allocationContext = "base:allocation"
	// depthContext is QEMU's meta context for a block's layer: 1 for the top, 0 for
	// a block that no layer has (docs/interop/nbd.txt of QEMU).
	depthContext = "qemu:allocation-depth"
)

// negotiate requests the options that make reading faster, and does without those that the server
// refuses.
func (e *Export) negotiate(export string, metaContexts []string) error {
	if err := e.c.greet(); err != nil {
		return err
	}
	var refused *refusal
	err := e.c.option(optionStructuredReply, nil, nil)
	e.structured = err == nil
	if e.structured {
		err = e.c.choose(export, metaContexts...)
		if errors.Is(err, errNoContext) {
			err = nil
		}
	}
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	return e.c.enter(export)
}

// SizeBytes returns the size of the export when it was opened.
func (e *Export) SizeBytes() int64 { return e.c.sizeBytes }

// ReadOnly reports whether the server accepts no writes.
func (e *Export) ReadOnly() bool { return e.c.flags&flagReadOnly != 0 }

// ReadAt reads all of p, or fails.
func (e *Export) ReadAt(p []byte, off int64) (int, error) {
	for at := 0; at < len(p); at += maxTransferBytes {
		part := p[at:min(at+maxTransferBytes, len(p))]
		c := &call{command: commandRead, off: off + int64(at), n: int64(len(part)), p: part}
		if err := e.do(c, nil); err != nil {
			return at, err
		}
	}
	return len(p), nil
}

// WriteAt writes all of p, or fails.
func (e *Export) WriteAt(p []byte, off int64) (int, error) {
	for at := 0; at < len(p); at += maxTransferBytes {
		part := p[at:min(at+maxTransferBytes, len(p))]
		c := &call{command: commandWrite, off: off + int64(at), n: int64(len(part))}
		if err := e.do(c, part); err != nil {
			return at, err
		}
	}
	return len(p), nil
}

// ZeroAt makes n bytes read as zeros. It returns errors.ErrUnsupported if the server has no such
// request.
func (e *Export) ZeroAt(off, n int64) error {
	if e.c.flags&flagWriteZeroes == 0 {
		return errors.ErrUnsupported
	}
	for n > 0 {
		part := min(n, maxAskBytes)
		if err := e.do(&call{command: commandWriteZeroes, off: off, n: part}, nil); err != nil {
			return err
		}
		off, n = off+part, n-part
	}
	return nil
}

// Flush makes the server write acknowledged writes to stable storage.
func (e *Export) Flush() error {
	if e.c.flags&flagFlush == 0 {
		return nil // by the protocol, such a server has no volatile data
	}
	return e.do(&call{command: commandFlush}, nil)
}

const stateZero = 1 << 1

// Extent returns the end of the extent at off. data is true if the extent is data, and false if
// the server reports zeros. If the server reports no extents, everything is data.
func (e *Export) Extent(off int64) (until int64, data bool, err error) {
	if !e.c.has(allocationContext) || off >= e.c.sizeBytes {
		return e.c.sizeBytes, true, nil
	}
	return e.whether(off, allocationContext, func(flags uint32) bool { return flags&stateZero == 0 })
}

const depthTop = 1

// Own returns the end of the extent at off. own is true if the top layer of the image has the
// extent's bytes, data or zeros. The export must come from OpenLayered.
func (e *Export) Own(off int64) (until int64, own bool, err error) {
	if off >= e.c.sizeBytes {
		return e.c.sizeBytes, false, nil
	}
	return e.whether(off, depthContext, func(depth uint32) bool { return depth == depthTop })
}

// whether calls test with the status of the block at off, and returns its result. until is the end
// of the range with the same result.
func (e *Export) whether(off int64, metaContext string, test func(flags uint32) bool) (until int64, yes bool, err error) {
	size := e.c.sizeBytes
	c := &call{command: commandBlockStatus, off: off, n: min(maxAskBytes, size-off)}
	if err := e.do(c, nil); err != nil {
		return 0, false, err
	}
	until = off
	for i, x := range c.extents[metaContext] {
		if x.bytes == 0 || i > 0 && test(x.flags) != yes {
			break
		}
		yes = test(x.flags)
		until = min(until+int64(x.bytes), size)
	}
	if until == off {
		return 0, false, errors.New("the server answers with an extent of no length")
	}
	return until, yes, nil
}

// Close ends the connection. Unflushed writes may be lost.
func (e *Export) Close() error {
	e.cancel()
	e.mu.Lock()
	if e.lost == nil && !e.leaving {
		e.leaving = true
		_ = e.conn.SetWriteDeadline(time.Now().Add(time.Second))
		_ = e.c.disconnect()
	}
	e.mu.Unlock()
	err := e.conn.Close()
	<-e.ended
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (e *Export) do(c *call, payload []byte) error {
	if c.off < 0 || c.n < 0 || c.n > e.c.sizeBytes-c.off || c.n > math.MaxUint32 {
		return fmt.Errorf("%d bytes from %d on are not all in an export of %d bytes: %w", c.n, c.off, e.c.sizeBytes, unix.EINVAL)
	}
	if c.n == 0 && c.command != commandFlush {
		return nil
	}
	c.done = make(chan struct{})
	if err := e.send(c, payload); err != nil {
		return err
	}
	e.await(c)
	return c.err
}

// await waits for the answer of a call. If the server sends nothing for e.stall, await closes the
// connection, which ends all calls.
func (e *Export) await(c *call) {
	if e.stall == 0 {
		<-c.done
		return
	}
	timer := time.NewTimer(e.stall)
	defer timer.Stop()
	for {
		began := e.answers.Load()
		select {
		case <-c.done:
			return
		case <-timer.C:
		}
		if e.answers.Load() == began {
			e.giveUp()
			<-c.done
			return
		}
		timer.Reset(e.stall)
	}
}

func (e *Export) giveUp() {
	e.stalled.Store(true)
	_ = e.conn.Close()
}

func (e *Export) send(c *call, payload []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost != nil {
		return e.lost
	}
	e.calls[e.c.cookie+1] = c // request increments the cookie
	if e.stall != 0 {
		// If the server reads nothing, the request that fills the socket blocks here, and all
		// other requests wait for mu. Then no call may be in await, so this needs its own timer.
		unread := time.AfterFunc(e.stall, e.giveUp)
		defer unread.Stop()
	}
	err := e.c.request(c.command, c.off, c.n)
	if err == nil && len(payload) > 0 {
		_, err = e.c.out.Write(payload)
	}
	if err != nil {
		_ = e.conn.Close() // after half a request the connection is useless: receive ends all calls
	}
	return nil
}

func (e *Export) receive() {
	defer close(e.ended)
	var err error
	for err == nil {
		err = e.answer()
		e.answers.Add(1)
	}
	switch {
	case e.ctx.Err() != nil:
		err = context.Cause(e.ctx)
	case e.stalled.Load():
		err = fmt.Errorf("the storage has not answered for %v (%w)", e.stall, unix.ENOLINK)
	default:
		err = fmt.Errorf("the connection to the NBD server is lost: %w (%w)", err, unix.ENOLINK)
	}
	_ = e.conn.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = err
	for cookie, c := range e.calls {
		e.finish(cookie, c, err)
	}
}
