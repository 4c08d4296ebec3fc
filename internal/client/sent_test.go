// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
)

// When a daemon dies during a request, net/http sends it again by itself and finds no listener. The
// client must not conclude that nothing was sent.
func TestRequestThatWasSentBeforeTheDaemonDiedMayHaveBeenDone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(context.WithoutCancel(t.Context()), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			served <- err
			return
		}
		read := bufio.NewReader(conn)
		next := func() error {
			r, err := http.ReadRequest(read)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, r.Body)
			return err
		}
		err = next()
		if err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"schema_version\":1}")
		}
		// The second request is read, and then the listener is gone.
		served <- errors.Join(err, next(), l.Close(), conn.Close())
	}()
	c := newClient(t, path)
	if err := c.Do(t.Context(), "GET", "/", nil, nil); err != nil {
		t.Fatal(err)
	}
	err = c.Do(t.Context(), "POST", "/", map[string]int{"n": 1}, nil, client.IdempotencyKey("op-1"))
	if served := <-served; served != nil {
		t.Fatal(served)
	}
	if api.CodeOf(err) != api.CodeHypervisorUnavailable || api.AsError(err).Details["maybe_done"] != true {
		t.Errorf("error = %#v, want hypervisor_unavailable with maybe_done", err)
	}
}
