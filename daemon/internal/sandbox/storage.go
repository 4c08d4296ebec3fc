// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// StorageReach is what `volferryd storage` does. The key is an open file.
type StorageReach interface {
	// Check says what is wrong with the way to a cluster.
	Check(ctx context.Context, cluster string, key *os.File) error
	// Look says what the image at an address is, as text for whoever asks.
	Look(ctx context.Context, address string, key *os.File) ([]byte, error)
	// Watchers says who has an image open, as text for whoever asks.
	Watchers(ctx context.Context, address string, key *os.File) ([]byte, error)
	// Snapshot says what the text of whoever asks wants to know of a snapshot of an image, as text.
	Snapshot(ctx context.Context, address string, query []byte, key *os.File) ([]byte, error)
	// Change makes, renames or removes an image or a snapshot of one, as the text of whoever asks
	// says.
	Change(ctx context.Context, address string, change []byte, key *os.File) error
	// Open has an image served on a connection, until ended is called.
	Open(ctx context.Context, address string, writable bool, key *os.File) (conn *os.File, ended func() error, err error)
}

// CheckStorage has `volferryd storage` look what is wrong with the way to a cluster.
func CheckStorage(ctx context.Context, socket, cluster string, key *os.File) error {
	_, _, err := ask(ctx, socket, request{Call: callCheck, Name: cluster}, key)
	return err
}

// LookAtStorage has `volferryd storage` look at an image.
func LookAtStorage(ctx context.Context, socket, address string, key *os.File) ([]byte, error) {
	out, _, err := ask(ctx, socket, request{Call: callLook, Name: address}, key)
	return out.Value, err
}

// WatchersOfStorage has `volferryd storage` ask who has an image open.
func WatchersOfStorage(ctx context.Context, socket, address string, key *os.File) ([]byte, error) {
	out, _, err := ask(ctx, socket, request{Call: callWatchers, Name: address}, key)
	return out.Value, err
}

// SnapshotOfStorage has `volferryd storage` look at a snapshot of an image.
func SnapshotOfStorage(ctx context.Context, socket, address string, query []byte, key *os.File) ([]byte, error) {
	out, _, err := ask(ctx, socket, request{Call: callSnapshot, Name: address, Value: query}, key)
	return out.Value, err
}

// ChangeStorage has `volferryd storage` make, rename or remove an image or a snapshot of one.
func ChangeStorage(ctx context.Context, socket, address string, change []byte, key *os.File) error {
	_, _, err := ask(ctx, socket, request{Call: callChange, Name: address, Value: change}, key)
	return err
}

// OpenStorage has `volferryd storage` serve an image. What serves it ends with the connection, and
// is gone when Close of it returns.
func OpenStorage(ctx context.Context, socket, address string, writable bool, key *os.File) (net.Conn, error) {
	control, err := connectTo(ctx, socket)
	if err != nil {
		return nil, noAnswer(socket, err)
	}
	out, handedOver, err := exchange(ctx, control, request{Call: callOpen, Name: address, Write: writable}, key)
	if err != nil {
		err = noAnswer(socket, err)
	} else if err = out.err(); err == nil && handedOver == nil {
		err = errors.New("volferryd storage has handed no connection over")
	}
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	conn, err := net.FileConn(handedOver) // has a descriptor of its own
	if err := errors.Join(err, handedOver.Close()); err != nil {
		return nil, errors.Join(err, control.Close())
	}
	return &storageConn{Conn: conn, control: control}, nil
}

// storageConn is a connection on which an image is served for as long as control is open.
type storageConn struct {
	net.Conn

	control *net.UnixConn
	close   sync.Once
	err     error
}

// endTimeout is longer than whoever serves an image takes to end what does.
const endTimeout = 20 * time.Second

// Close closes both connections, and waits until the image is let go of.
func (c *storageConn) Close() error {
	c.close.Do(func() {
		err := errors.Join(c.Conn.Close(), c.control.CloseWrite(), c.control.SetReadDeadline(time.Now().Add(endTimeout)))
		// Until it is closed over there.
		if _, readErr := c.control.Read(make([]byte, 1)); !errors.Is(readErr, io.EOF) {
			err = errors.Join(err, fmt.Errorf("nobody has seen the image be let go of: %w", readErr))
		}
		c.err = errors.Join(err, c.control.Close())
	})
	return c.err
}

// ServeStorage answers LookAtStorage and OpenStorage at a socket until ctx ends, and closes the
// socket.
func ServeStorage(ctx context.Context, listener *net.UnixListener, reach StorageReach, log *slog.Logger) error {
	return serve(ctx, listener, answerStorage(reach), log)
}

// maxOpen is how many images are served at a time. Each has a process of its own.
const maxOpen = 64

func answerStorage(reach StorageReach) handler {
	open := make(chan struct{}, maxOpen)
	return func(ctx context.Context, in request, key *os.File) (answer, *os.File) {
		if key == nil {
			return failed(errors.New("the request has no key")), nil
		}
		switch in.Call {
		case callCheck:
			if err := reach.Check(ctx, in.Name, key); err != nil {
				return failed(err), nil
			}
			return answer{}, nil
		case callLook:
			return said(reach.Look(ctx, in.Name, key)), nil
		case callWatchers:
			return said(reach.Watchers(ctx, in.Name, key)), nil
		case callSnapshot:
			return said(reach.Snapshot(ctx, in.Name, in.Value, key)), nil
		case callChange:
			if err := reach.Change(ctx, in.Name, in.Value, key); err != nil {
				return failed(err), nil
			}
			return answer{}, nil
		case callOpen:
			select {
			case open <- struct{}{}:
			default:
				return failed(fmt.Errorf("%d images are open on this host, and no more are at a time: try again when a copy has ended", maxOpen)), nil
			}
			conn, ended, err := reach.Open(ctx, in.Name, in.Write, key)
			if err != nil {
				<-open
				return failed(err), nil
			}
			return answer{ended: func() error {
				defer func() { <-open }()
				return ended()
			}}, conn
		}
		return failed(fmt.Errorf("there is no call %q here", in.Call)), nil
	}
}

// said is the answer that is a text.
func said(text []byte, err error) answer {
	if err != nil {
		return failed(err)
	}
	return answer{Value: text}
}
