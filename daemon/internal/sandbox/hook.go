// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
)

// InstallHook makes `volferryd hook`, at a socket, install the hook of its version at the
// configured path. The request has neither content nor path.
func InstallHook(ctx context.Context, socket string) error {
	_, _, err := ask(ctx, socket, request{Call: callHook}, nil)
	return err
}

// ServeHook serves InstallHook at a socket until ctx ends, and closes the socket.
func ServeHook(ctx context.Context, listener *net.UnixListener, install func() error, log *slog.Logger) error {
	return serve(ctx, listener, func(_ context.Context, in request, _ *os.File) (answer, *os.File) {
		if in.Call != callHook {
			return failed(fmt.Errorf("there is no call %q here", in.Call)), nil
		}
		if err := install(); err != nil {
			return failed(err), nil
		}
		return answer{}, nil
	}, log)
}
