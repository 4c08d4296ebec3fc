// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
)

// Peer returns what the other side announced with its last answer; false if there was none
// yet.
func (c *Client) Peer() (protocol.Announcement, bool) {
	if peer := c.peer.Load(); peer != nil {
		return *peer, true
	}
	return protocol.Announcement{}, false
}

// CheckPeer refuses, with state_forbidden, what needs features that the other side is known
// not to have.
func (c *Client) CheckPeer(needs []string) error {
	peer, known := c.Peer()
	if !known {
		return nil
	}
	return peer.Check("the program at "+c.target, needs) //nolint:wrapcheck // it is the answer
}

// checkNeeds is CheckPeer that asks the other side who it is, where that is not known.
func (c *Client) checkNeeds(ctx context.Context, needs []string) error {
	if len(needs) == 0 {
		return nil
	}
	if _, known := c.Peer(); !known {
		route := routes.ShowRegistryVersion
		resp, err := c.send(ctx, route.Method, route.PathOf(), nil, call{})
		if err != nil {
			return err
		}
		_ = resp.Body.Close() // its header says it
	}
	return c.CheckPeer(needs)
}

// listening notes what the other side announces.
type listening struct {
	transport
	c *Client
}

// RoundTrip implements http.RoundTripper.
func (l listening) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.transport.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // transportError reads it
	}
	peer := protocol.AnnouncedIn(resp.Header)
	l.c.peer.Store(&peer)
	return resp, nil
}
