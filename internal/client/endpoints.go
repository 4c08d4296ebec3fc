// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
)

// Endpoint is one URL of a registry.
type Endpoint struct {
	URL string
	// InUse: requests are sent there.
	InUse bool
	// Err is why it does not answer, or did not when it was last tried; nil if it did or was
	// not tried.
	Err error
}

// Endpoints returns the URLs of a client that has several, nil for one.
func (c *Client) Endpoints() []Endpoint {
	if c.failover == nil {
		return nil
	}
	f := c.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Endpoint, len(f.members))
	for i, member := range f.members {
		out[i] = Endpoint{URL: member.target, InUse: i == f.current.index && f.failures[i] == nil, Err: f.failures[i]}
	}
	return out
}

// ErrTwoRegistries is of an endpoint where a process answers beside the one in use.
var ErrTwoRegistries = errors.New("another process of the same registry answers there at the same time")

// Probe asks each endpoint, by a connection of its own, who it is. It changes nothing about which
// is in use.
func (c *Client) Probe(ctx context.Context) []Endpoint {
	out := c.Endpoints()
	if out == nil {
		return nil
	}
	f := c.failover
	now := f.inUse()
	now.mu.Lock()
	process := now.process
	now.mu.Unlock()
	for i := range out {
		one := f.newSession(i)
		conn, err := one.transport.dial(ctx, "tcp", one.member.base.Host)
		if err == nil {
			_ = conn.Close()
		}
		switch {
		case err != nil:
			out[i].Err = one.member.transportError(ctx, err)
		case process != "" && one.process != process:
			out[i].Err = ErrTwoRegistries
		default:
			out[i].Err = nil
		}
	}
	return out
}
