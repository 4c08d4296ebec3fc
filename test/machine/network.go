// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
)

// Network is a switch between machines, in a network namespace of its own: nothing of
// the network of the host is in it, or sees it.
type Network struct {
	namespace *namespace
	ports     int
}

// NewNetwork makes a network. Close must be called.
func NewNetwork(ctx context.Context) (*Network, error) {
	ns, err := newNamespace(ctx)
	if err != nil {
		return nil, err
	}
	n := &Network{namespace: ns}
	for _, command := range [][]string{
		{"ip", "link", "add", "switch", "type", "bridge"},
		{"ip", "link", "set", "switch", "up"},
	} {
		if err := ns.run(ctx, command...); err != nil {
			_ = ns.close() // the first error is to be reported
			return nil, err
		}
	}
	return n, nil
}

// Connect gives a machine, booted or not, an interface eth0 with an address, such as
// 192.0.2.1/24, in the network. It stays over reboots.
func (n *Network) Connect(ctx context.Context, m *Machine, address string) error {
	n.ports++
	port := fmt.Sprintf("port%d", n.ports)
	for _, command := range [][]string{
		{"ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", m.namespace.pid()},
		{"ip", "link", "set", port, "master", "switch", "up"},
	} {
		if err := n.namespace.run(ctx, command...); err != nil {
			return err
		}
	}
	for _, command := range [][]string{
		{"ip", "address", "add", address, "dev", "eth0"},
		{"ip", "link", "set", "eth0", "up"},
	} {
		if err := m.namespace.run(ctx, command...); err != nil {
			return err
		}
	}
	return nil
}

// Close removes the network.
func (n *Network) Close() error { return n.namespace.close() }
