// SPDX-License-Identifier: Apache-2.0

package client

import (
	"github.com/volferry/volferry/internal/protocol"
)

// Peer returns what the other side announced with its last answer. It returns false if
// there was no answer yet.
func (c *connection) Peer() (protocol.Announcement, bool) {
	if peer := c.peer.Load(); peer != nil {
		return *peer, true
	}
	return protocol.Announcement{}, false
}

// CheckPeer refuses, with state_forbidden, a request that needs features which the other
// side is known not to have.
func (c *connection) CheckPeer(needs []string) error {
	peer, known := c.Peer()
	if !known {
		return nil
	}
	return peer.Check("the program at "+c.target, needs) //nolint:wrapcheck // it is the answer
}
