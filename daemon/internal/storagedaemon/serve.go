// SPDX-License-Identifier: Apache-2.0

// Package storagedaemon has qemu-storage-daemon serve one image to this process, at a socket that
// nobody else can find. What is said there is NBD. It must not know what the image is for.
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

// HandOver returns the connection as an open file for another process, and closes it in this one.
// Its server goes on until Close.
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

// Serve has an image served, and returns when the server has opened it. A server that ends before
// is an *EndedError, one that is not installed child.ErrNotInstalled, and the cause of ctx is
// returned if that ends first.
func Serve(ctx context.Context, image Image) (*Served, error) {
	listening, conn, err := meetingPoint()
	if err != nil {
		return nil, fmt.Errorf("make a socket for %s: %w", Program, err)
	}
	p, err := start(ctx, image, listening)
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

// meetingPoint is a socket that is listened at, with one connection that is made already, and with
// no name any more by which anybody could make another one.
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
