// SPDX-License-Identifier: Apache-2.0

package libvirt

import "context"

// yanked names a connection of QEMU's, by the block node that has it.
type yanked struct {
	Type string `json:"type"`
	Node string `json:"node-name"`
}

// EndConnections implements hv.Hypervisor: libvirt has no call for it, and QEMU has since its version 6.0
// (docs/interop/qemu-qmp-ref: yank).
func (c *Conn) EndConnections(ctx context.Context, id, address string) error {
	var nodes []graphNode
	if err := c.monitor(ctx, "list the block nodes of", id, "", command{"query-named-block-nodes", map[string]bool{"flat": true}}, &nodes); err != nil {
		return err
	}
	var connections []yanked
	for i := range nodes {
		if n := &nodes[i]; n.Driver == driverNBD && n.export() == address {
			connections = append(connections, yanked{Type: "block-node", Node: n.Name})
		}
	}
	if len(connections) == 0 {
		return nil
	}
	return c.monitor(ctx, "end the connections to "+address+" of", id, "", command{"yank", map[string][]yanked{"instances": connections}}, nil)
}
