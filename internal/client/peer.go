// SPDX-License-Identifier: Apache-2.0

package client

import (
	"github.com/volferry/volferry/internal/protocol"
)

// Peer returns the announcement of the server's last answer, false before the first answer.
func (c *connection) Peer() (protocol.Announcement, bool) {
	if peer := c.peer.Load(); peer != nil {
		return *peer, true
	}
	return protocol.Announcement{}, false
}

// CheckPeer returns state_forbidden if the server is known to lack one of the features.
func (c *connection) CheckPeer(needs []string) error {
	peer, known := c.Peer()
	if !known {
		return nil
	}
	return peer.Check("the program at "+c.target, needs) //nolint:wrapcheck // it is the answer
}
