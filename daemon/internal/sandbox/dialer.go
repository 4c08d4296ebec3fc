// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"
)

const dialTimeout = 10 * time.Second

// With keepAlive a connection fails within half a minute after the other machine is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// Dial connects to the address of the registry or of an NBD server through `volferryd dialer`.
// Errors are *net.OpError.
func Dial(ctx context.Context, socket, address string) (net.Conn, error) {
	_, handedOver, err := ask(ctx, socket, request{Call: callConnect, Name: address}, nil)
	if err == nil && handedOver == nil {
		err = errors.New("the dialer has handed no connection over")
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	conn, err := net.FileConn(handedOver) // duplicates the descriptor
	if err := errors.Join(err, handedOver.Close()); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return conn, nil
}

// ServeDialer serves Dial at a socket until ctx ends, and closes the socket. For each request it
// calls addresses, which returns the permitted destinations.
func ServeDialer(ctx context.Context, listener *net.UnixListener, addresses func() ([]string, error), log *slog.Logger) error {
	return serve(ctx, listener, answerDial(addresses), log)
}

func answerDial(addresses func() ([]string, error)) handler {
	return func(ctx context.Context, in request, _ *os.File) (answer, *os.File) {
		if in.Call != callConnect {
			return failed(fmt.Errorf("there is no call %q here", in.Call)), nil
		}
		file, err := connect(ctx, addresses, in.Name)
		if err != nil {
			return failed(err), nil
		}
		return answer{}, file
	}
}

func connect(ctx context.Context, addresses func() ([]string, error), to string) (*os.File, error) {
	all, err := addresses()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(all, to) {
		return nil, fmt.Errorf("there is neither the registry nor an NBD server at %s by the configuration; restart volferryd after a change of it", to)
	}
	dialer := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
	conn, err := dialer.DialContext(ctx, "tcp", to)
	var op *net.OpError
	if errors.As(err, &op) {
		return nil, op.Err
	}
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(errors.New("it is no TCP connection"), conn.Close())
	}
	file, err := tcp.File()
	return file, errors.Join(err, tcp.Close())
}
