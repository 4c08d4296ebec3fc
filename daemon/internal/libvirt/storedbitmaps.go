// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// StoredBitmaps implements hv.Hypervisor.
func (ch *chains) StoredBitmaps(ctx context.Context, id string) ([]hv.StoredBitmap, error) {
	nodes, err := ch.calls.blockNodes(ctx, id)
	if err != nil {
		return nil, err
	}
	var all []hv.StoredBitmap
	for _, n := range nodes {
		for _, b := range n.DirtyBitmaps {
			if b.Persistent {
				all = append(all, hv.StoredBitmap{Name: b.Name, Node: n.Name, Path: n.path(), Idle: !b.Recording || b.Inconsistent})
			}
		}
	}
	return all, nil
}

// path returns the file or device below a format node, or "": for an image that is opened with a
// key, QEMU writes options instead.
func (n *graphNode) path() string {
	options, is := strings.CutPrefix(n.File, optionsPrefix)
	if !is {
		return n.File
	}
	var over struct {
		File struct {
			Filename string `json:"filename"`
		} `json:"file"`
	}
	if json.Unmarshal([]byte(options), &over) != nil {
		return ""
	}
	return over.File.Filename
}
