// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
)

// Connector sends a request to the connector of a pool through `volferryd connectors`, and returns
// the answer. Both are text of at most 64 KiB.
func Connector(ctx context.Context, socket, pool string, text []byte) ([]byte, error) {
	out, _, err := ask(ctx, socket, request{Call: callConnector, Name: pool, Value: text}, nil)
	return out.Value, err
}

// ServeConnectors serves Connector at a socket until ctx ends, and closes the socket. Requests in
// progress are completed.
func ServeConnectors(ctx context.Context, listener *net.UnixListener, run func(ctx context.Context, pool string, text []byte) ([]byte, error), log *slog.Logger) error {
	return serve(ctx, listener, answerConnector(run), log)
}

func answerConnector(run func(ctx context.Context, pool string, text []byte) ([]byte, error)) handler {
	return func(ctx context.Context, in request, _ *os.File) (answer, *os.File) {
		if in.Call != callConnector {
			return failed(fmt.Errorf("there is no call %q here", in.Call)), nil
		}
		text, err := run(context.WithoutCancel(ctx), in.Name, in.Value)
		if err != nil {
			return failed(err), nil
		}
		return answer{Value: text}, nil
	}
}
