// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"

	"github.com/volferry/volferry/internal/medium"
)

type yanked struct {
	Type string `json:"type"`
	Node string `json:"node-name"`
}

// EndConnections implements hv.Hypervisor. libvirt has no call for it; QEMU has one since 6.0
// (docs/interop/qemu-qmp-ref: yank).
func (j *blockJobs) EndConnections(ctx context.Context, id, address string) error {
	nodes, err := j.calls.blockNodes(ctx, id)
	if err != nil || !medium.IsNBD(address) {
		return err
	}
	names, _ := nodesAt(nodes, address, j.clusters)
	var connections []yanked
	for _, name := range names {
		connections = append(connections, yanked{Type: "block-node", Node: name})
	}
	if len(connections) == 0 {
		return nil
	}
	return j.calls.monitor(ctx, "end the connections to "+address+" of", id, "", command{"yank", map[string][]yanked{"instances": connections}}, nil)
}
