// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
)

// keepAlive detects within half a minute that the peer's machine is unreachable.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// activated returns the listeners that systemd passed. The environment can be read only once.
var activated = sync.OnceValues(activation.Listeners)

// handedOver returns the listener that systemd opened for this program at an address, or nil.
// Other machines reach a program in its own network namespace only through such a listener.
func handedOver(network, address string) (net.Listener, error) {
	given, err := activated()
	if err != nil {
		return nil, fmt.Errorf("take sockets from systemd: %w", err)
	}
	return at(given, network, address)
}

// OnlySocket returns the one Unix socket that systemd passed.
func OnlySocket() (*net.UnixListener, error) {
	given, err := activated()
	if err != nil {
		return nil, fmt.Errorf("take sockets from systemd: %w", err)
	}
	if len(given) == 1 {
		if l, ok := given[0].(*net.UnixListener); ok {
			return l, nil
		}
	}
	return nil, errors.New("this command is for systemd to start, with the socket of its socket unit")
}

// OnlyConnection returns the Unix connection that systemd has started this program for
// (Accept=yes).
func OnlyConnection() (*net.UnixConn, error) {
	files := activation.Files(true)
	if len(files) != 1 {
		return nil, errors.New("this command is for systemd to start, with a connection to its socket unit")
	}
	conn, err := net.FileConn(files[0]) // duplicates the descriptor
	if err := errors.Join(err, files[0].Close()); err != nil {
		return nil, fmt.Errorf("take a connection from systemd: %w", err)
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("take a connection from systemd: it is no Unix socket"), conn.Close())
	}
	return unix, nil
}

// at returns the given listener with this address, or nil. A TCP address without a host means
// every address of the machine, as in ListenStream=7643.
func at(given []net.Listener, network, address string) (net.Listener, error) {
	for _, l := range given {
		if l == nil || !strings.HasPrefix(l.Addr().Network(), network) {
			continue
		}
		if l.Addr().String() == address {
			return l, nil
		}
		opened, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			continue
		}
		wanted, err := net.ResolveTCPAddr(network, address)
		if err != nil {
			return nil, fmt.Errorf("read address %s: %w", address, err)
		}
		everywhere := (wanted.IP == nil || wanted.IP.IsUnspecified()) && opened.IP.IsUnspecified()
		if opened.Port == wanted.Port && (everywhere || opened.IP.Equal(wanted.IP)) {
			return l, nil
		}
	}
	return nil, nil //nolint:nilnil // nothing was opened there
}

// keptAlive sets keepAlive on the accepted connections. For listeners that this program opens,
// net.ListenConfig does that.
type keptAlive struct{ net.Listener }

func (l keptAlive) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if c, ok := conn.(*net.TCPConn); ok && err == nil {
		_ = c.SetKeepAliveConfig(keepAlive) // fails only if the peer is gone
	}
	return conn, err
}
