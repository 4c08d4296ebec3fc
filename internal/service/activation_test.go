// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net"
	"path/filepath"
	"testing"
)

func TestAListenerOfSystemdIsFoundByWhatIsConfigured(t *testing.T) {
	open := func(network, address string) net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	port := func(l net.Listener) string {
		_, p, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	path := filepath.Join(t.TempDir(), "socket")
	socket, everywhere, loopback := open("unix", path), open("tcp", ":0"), open("tcp", "127.0.0.1:0")
	given := []net.Listener{nil, socket, everywhere, loopback} // nil is a datagram socket
	for _, c := range []struct {
		network, address string
		want             net.Listener
	}{
		{"unix", path, socket},
		{"unix", path + "2", nil},
		{"tcp", path, nil},
		{"tcp", ":" + port(everywhere), everywhere},
		{"tcp", "0.0.0.0:" + port(everywhere), everywhere},
		{"tcp", "[::]:" + port(everywhere), everywhere},
		{"tcp", "127.0.0.1:" + port(everywhere), nil}, // the operator wants one address only
		{"tcp", "127.0.0.1:" + port(loopback), loopback},
		{"tcp", ":" + port(loopback), nil},
		{"tcp", "127.0.0.1:1", nil},
	} {
		got, err := at(given, c.network, c.address)
		if c.address == path && c.network == "tcp" {
			if got != nil || err == nil {
				t.Errorf("%s as a TCP address: %v, %v; want an error", c.address, got, err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s %s: %v, %v; want %v", c.network, c.address, got, err, c.want)
		}
	}
}
