// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/json"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"
)

type command struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
}

// refusedByQEMU is the answer of a process that understood a command, and did nothing.
type refusedByQEMU struct {
	Execute string `json:"-"`
	Class   string `json:"class"`
	Desc    string `json:"desc"`
}

func (e *refusedByQEMU) Error() string { return "QEMU refuses " + e.Execute + ": " + e.Desc }

// monitor lets the process of a domain execute a command, and decodes its result into out, if not
// nil. libvirt passes both through unread, and marks the domain as tainted until its process ends.
// Use it only if libvirt has no call.
func (c *calls) monitor(ctx context.Context, what, id, target string, cmd command, out any) error {
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
	var reply struct {
		Return json.RawMessage `json:"return"`
		Error  *refusedByQEMU  `json:"error"`
	}
	err = json.Unmarshal([]byte(answer), &reply)
	switch {
	case err != nil:
	case reply.Error != nil:
		reply.Error.Execute = cmd.Execute
		err = reply.Error
	case out != nil:
		err = json.Unmarshal(reply.Return, out)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, nameOf(id, target), err)
	}
	return nil
}
