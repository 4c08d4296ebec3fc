// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/volferry/volferry/internal/shell"
)

// attempts is how many times a request is sent if its connection breaks before the answer, for
// example at a restart of the answering program. Every request may be repeated.
const attempts = 3

// ask sends a request, with file if that is not nil, to a socket. handedOver is the file of the
// answer, or nil; the caller closes it.
func ask(ctx context.Context, socket string, in request, file *os.File) (out answer, handedOver *os.File, err error) {
	for range attempts {
		out, handedOver, err = askOnce(ctx, socket, in, file)
		if err == nil {
			return out, handedOver, out.err()
		}
		cut := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
		if ctx.Err() != nil || !cut {
			break
		}
	}
	return out, nil, noAnswer(socket, err)
}

// Answers returns nil if the program at a socket answers, and otherwise an error that names the
// next command. A socket without its program exists too, because systemd listens there.
func Answers(ctx context.Context, socket string) error {
	_, _, err := ask(ctx, socket, request{Call: callAnswers}, nil)
	return err
}

func noAnswer(socket string, err error) error {
	unit := "volferryd-" + strings.TrimSuffix(filepath.Base(socket), ".sock")
	// The error is not wrapped: its "no such file" does not concern the file of the request.
	return fmt.Errorf("no answer at %s (%v); `%s` says why", socket, err, shell.Line("systemctl", "status", unit+".socket", unit+".service")) //nolint:errorlint // see above
}

func askOnce(ctx context.Context, socket string, in request, file *os.File) (out answer, handedOver *os.File, err error) {
	conn, err := connectTo(ctx, socket)
	if err != nil {
		return out, nil, err
	}
	defer func() { _ = conn.Close() }() // the answer has come, or an error
	return exchange(ctx, conn, in, file)
}

func connectTo(ctx context.Context, socket string) (*net.UnixConn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return nil, err
	}
	conn, ok := raw.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("it is no Unix socket"), raw.Close())
	}
	return conn, nil
}

func exchange(ctx context.Context, conn *net.UnixConn, in request, files ...*os.File) (out answer, handedOver *os.File, err error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := send(conn, in, files...); err != nil {
		return out, nil, err
	}
	handedOver, err = receive(conn, &out)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return out, handedOver, err
}
