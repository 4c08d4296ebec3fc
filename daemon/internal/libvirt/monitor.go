// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/json"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/libvirt/qmp"
)

// monitor lets the process of a domain execute a QMP command, and decodes its result into out, if
// not nil. libvirt passes both through unread, and marks the domain as tainted until its process
// ends. Use it only if libvirt has no call.
func (c *calls) monitor(ctx context.Context, what, id, target string, cmd qmp.Command, out any) error {
	text, err := json.Marshal(cmd)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, nameOf(id, target), err)
	}
	answer := ""
	err = c.change(ctx, what, id, target, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) (err error) {
		answer, err = lv.QEMUDomainMonitorCommand(dom, string(text), 0)
		return err
	})
	if err != nil {
		return err
	}
	if err := cmd.Decode(answer, out); err != nil {
		return fmt.Errorf("%s %s: %w", what, nameOf(id, target), err)
	}
	return nil
}

func (c *calls) blockNodes(ctx context.Context, id string) (nodes []qmp.Node, err error) {
	err = c.monitor(ctx, "list the block nodes of", id, "", qmp.Command{Execute: "query-named-block-nodes", Arguments: map[string]bool{"flat": true}}, &nodes)
	return nodes, err
}
