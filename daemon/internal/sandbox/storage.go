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

// StorageReach does the work of `volferryd storage`. key is an open file with the key of a Ceph
// cluster.
type StorageReach interface {
	// Check returns an error if there is a problem with the access to a cluster.
	Check(ctx context.Context, cluster string, key *os.File) error
	// Look describes the image at an address, as text.
	Look(ctx context.Context, address string, key *os.File) ([]byte, error)
	// Watchers lists who has an image open, as text.
	Watchers(ctx context.Context, address string, key *os.File) ([]byte, error)
	// Snapshot answers a query for a snapshot of an image. Query and answer are text.
	Snapshot(ctx context.Context, address string, query []byte, key *os.File) ([]byte, error)
	Change(ctx context.Context, address string, change []byte, key *os.File) error
	// Open serves an image on the connection conn, until ended is called.
	Open(ctx context.Context, address string, writable bool, key *os.File) (conn *os.File, ended func() error, err error)
}

// CheckStorage checks the access to a cluster through `volferryd storage`.
func CheckStorage(ctx context.Context, socket, cluster string, key *os.File) error {
	_, _, err := ask(ctx, socket, request{Call: callCheck, Name: cluster}, key)
	return err
}

// LookAtStorage calls StorageReach.Look in the program at a socket.
func LookAtStorage(ctx context.Context, socket, address string, key *os.File) ([]byte, error) {
	out, _, err := ask(ctx, socket, request{Call: callLook, Name: address}, key)
	return out.Value, err
}

// WatchersOfStorage calls StorageReach.Watchers in the program at a socket.
func WatchersOfStorage(ctx context.Context, socket, address string, key *os.File) ([]byte, error) {
	out, _, err := ask(ctx, socket, request{Call: callWatchers, Name: address}, key)
	return out.Value, err
}

// SnapshotOfStorage calls StorageReach.Snapshot in the program at a socket.
func SnapshotOfStorage(ctx context.Context, socket, address string, query []byte, key *os.File) ([]byte, error) {
	out, _, err := ask(ctx, socket, request{Call: callSnapshot, Name: address, Value: query}, key)
	return out.Value, err
}

// ChangeStorage calls StorageReach.Change in the program at a socket.
func ChangeStorage(ctx context.Context, socket, address string, change []byte, key *os.File) error {
	_, _, err := ask(ctx, socket, request{Call: callChange, Name: address, Value: change}, key)
	return err
}

// OpenStorage makes `volferryd storage` serve an image on the returned connection. The image's
// server ends with the connection, and is gone when Close returns.
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
	conn, err := net.FileConn(handedOver) // duplicates the descriptor
	if err := errors.Join(err, handedOver.Close()); err != nil {
		return nil, errors.Join(err, control.Close())
	}
	return &storageConn{Conn: conn, control: control}, nil
}

type storageConn struct {
	net.Conn

	control *net.UnixConn
	close   sync.Once
	err     error
}

// endTimeout is longer than `volferryd storage` takes to end an image's server.
const endTimeout = 20 * time.Second

// Close closes the image's and the control connection, and waits until the server has released the
// image.
func (c *storageConn) Close() error {
	c.close.Do(func() {
		err := errors.Join(c.Conn.Close(), c.control.CloseWrite(), c.control.SetReadDeadline(time.Now().Add(endTimeout)))
		// This read returns when the other side closes the connection.
		if _, readErr := c.control.Read(make([]byte, 1)); !errors.Is(readErr, io.EOF) {
			err = errors.Join(err, fmt.Errorf("nobody has seen the image be let go of: %w", readErr))
		}
		c.err = errors.Join(err, c.control.Close())
	})
	return c.err
}

// ServeStorage serves StorageReach at a socket until ctx ends, and closes the socket.
func ServeStorage(ctx context.Context, listener *net.UnixListener, reach StorageReach, log *slog.Logger) error {
	return serve(ctx, listener, answerStorage(reach), log)
}

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

func said(text []byte, err error) answer {
	if err != nil {
		return failed(err)
	}
	return answer{Value: text}
}
