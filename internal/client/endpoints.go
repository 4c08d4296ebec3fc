// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
)

// Endpoint is one URL of a registry.
type Endpoint struct {
	URL   string
	InUse bool
	// Err is why the last try of this URL failed, or nil.
	Err error
}

// Endpoints returns the client's URLs if it has several, or nil.
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

// ErrTwoRegistries is the error of an endpoint if its process is not the process at the endpoint
// in use.
var ErrTwoRegistries = errors.New("another process of the same registry answers there at the same time")

// Probe connects to each endpoint and identifies its registry. The endpoint in use does not
// change.
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
