// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// graphNode is a node of QEMU's block graph, in the answer of query-named-block-nodes.
type graphNode struct {
	Name     string `json:"node-name"`
	Driver   string `json:"drv"`
	File     string `json:"file"`
	ReadOnly bool   `json:"ro"`
}

// The drivers of nodes: of NBD exports, and of what libvirt puts over them before its version 9.10.
const (
	driverNBD = "nbd"
	driverRaw = "raw"
)

// openNodes lists what the process of a domain has of the images at these addresses, by its own
// block graph. libvirt passes the question on: a libvirtd that died inside a call, and shows old chains
// since, has no part in the answer. If libvirt does not have the process, which is there by the kernel's
// word, nobody can ask it, and all of them count as open for writing.
func (c *Conn) openNodes(ctx context.Context, id string, pid int, addresses []string) ([]hv.OpenFile, error) {
	var nodes []graphNode
	err := c.monitor(ctx, "list the block nodes of", id, "", command{"query-named-block-nodes", map[string]bool{"flat": true}}, &nodes)
	lost := errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound)
	if err != nil && !lost {
		return nil, err
	}
	var found []hv.OpenFile
	for _, address := range addresses {
		node, writable, is := nodeAt(nodes, address)
		if is || lost {
			found = append(found, hv.OpenFile{Path: address, PID: pid, Node: node, Writable: writable || lost})
		}
	}
	return found, nil
}

// nodeAt finds the node that has what is at an address. Whether it may write says the node of a format that
// is over it, where there is one: libvirt opens the one below so that it may do whatever that does. So each
// format that may not write makes up for one node that may.
func nodeAt(nodes []graphNode, address string) (name string, writable, is bool) {
	writers := 0
	for _, n := range nodes {
		if n.address() != address {
			continue
		}
		switch {
		case n.Driver == driverRaw && !n.ReadOnly:
			return n.Name, true, true
		case n.Driver == driverRaw:
			writers--
		case !n.ReadOnly:
			writers++
		}
		if n.Driver != driverRaw {
			name, is = n.Name, true
		}
	}
	return name, writers > 0, is
}

// address is what a node, or the one below it, has open over a network, as the path of a location; empty
// if it is nothing of that kind.
func (n *graphNode) address() string {
	if n.Driver != driverNBD && n.Driver != driverRaw {
		return ""
	}
	// The default export of a server, of which QEMU writes no name.
	file := strings.Replace(n.File, "nbd+unix://?", api.NBDScheme+"?", 1)
	if server, is := strings.CutPrefix(file, api.NBDTCPScheme); is && !strings.Contains(server, "/") {
		file += "/"
	}
	export, err := api.ParseNBD(file)
	if err != nil {
		return ""
	}
	return export.URI()
}
