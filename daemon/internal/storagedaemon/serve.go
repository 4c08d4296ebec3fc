// SPDX-License-Identifier: Apache-2.0

// Package storagedaemon makes qemu-storage-daemon serve one image to this process by NBD, at a
// socket without a name.
package storagedaemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Served is a connection to the server of one image. The server has no other client, and ends with
// the connection.
type Served struct {
	*net.UnixConn

	server *process
	close  sync.Once
	err    error
}

// Close closes the connection and ends its server. When it returns nil, the server has released
// the image.
func (s *Served) Close() error {
	s.close.Do(func() {
		if err := s.UnixConn.Close(); !errors.Is(err, net.ErrClosed) { // HandOver may have closed it
			s.err = err
		}
		s.err = errors.Join(s.err, s.server.end())
	})
	return s.err
}

// HandOver returns the connection as an open file for another process, and closes it in this
// process. The server runs until Close.
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

// Serve serves an image, and returns when the server has opened it. It returns an *EndedError if
// the server ends before that, child.ErrNotInstalled if the server is not installed, and the cause
// of ctx if ctx ends first.
func Serve(ctx context.Context, image Image) (*Served, error) {
	listening, conn, err := meetingPoint()
	if err != nil {
		return nil, fmt.Errorf("make a socket for %s: %w", Program, err)
	}
	p, err := start(ctx, image, listening)
	if err = errors.Join(err, listening.Close()); err != nil { // this process's copy of the socket; the server has its own
		return nil, errors.Join(err, conn.Close())
	}
	s := &Served{UnixConn: conn, server: p}
	if err := greeted(ctx, conn); err != nil {
		err = errors.Join(context.Cause(ctx), err)
		if ended := s.Close(); ctx.Err() == nil {
			err = errors.Join(p.said(), ended) // the server has ended, with a reason
		}
		return nil, err
	}
	return s, nil
}

// meetingPoint returns a listening socket and a connection to it. The socket has no name any more,
// so that no other connection can be made.
func meetingPoint() (listening *os.File, conn *net.UnixConn, err error) {
	dir, err := os.MkdirTemp("", "volferry-serve-")
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

// greeted waits for the server's first byte, without reading it: the server sends it after it has
// opened the image.
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
