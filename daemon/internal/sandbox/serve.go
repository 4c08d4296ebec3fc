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

	"golang.org/x/sys/unix"
)

const (
	requestTimeout = 10 * time.Second
	maxAtOnce      = 64
)

type handler func(ctx context.Context, in request, file *os.File) (answer, *os.File)

// serve answers requests at a socket until ctx ends, and closes the socket. It accepts requests
// only from root and from its own user (SO_PEERCRED).
func serve(ctx context.Context, listener *net.UnixListener, handle handler, log *slog.Logger) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	turns := make(chan struct{}, maxAtOnce)
	for {
		turns <- struct{}{}
		conn, err := listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		all.Go(func() {
			done := sync.OnceFunc(func() { <-turns })
			defer done()
			if err := serveOne(ctx, conn, handle, done); err != nil {
				log.Warn("a request was not answered", "err", err)
			}
		})
	}
}

// serveOne serves one connection. It calls done when the request is finished, even if the
// connection stays open.
func serveOne(ctx context.Context, conn *net.UnixConn, handle handler, done func()) (err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := checkPeer(conn); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	var in request
	file, err := receive(conn, &in)
	if err != nil {
		return err
	}
	if file != nil {
		defer func() { _ = file.Close() }()
	}
	var out answer
	var handedOver *os.File
	if in.Call != callAnswers {
		out, handedOver = handle(ctx, in, file)
	}
	if out.ended != nil {
		defer func() { err = errors.Join(err, out.ended()) }()
	}
	// A flush may have taken long.
	err = conn.SetDeadline(time.Now().Add(requestTimeout))
	if err == nil {
		err = send(conn, out, handedOver)
	}
	if handedOver != nil {
		_ = handedOver.Close()
	}
	if err == nil && out.ended != nil {
		done()
		err = untilClosed(ctx, conn)
	}
	return err
}

func untilClosed(ctx context.Context, conn *net.UnixConn) error {
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := conn.Read(make([]byte, 1))
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, credErr); err != nil {
		return fmt.Errorf("ask who connects: %w", err)
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("refused a request of uid %d: it is for volferryd alone", peer.Uid)
	}
	return nil
}
