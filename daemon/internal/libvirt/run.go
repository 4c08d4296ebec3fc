// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/retry"
)

const (
	heartbeatInterval = 5 * time.Second
	minBackoff        = 100 * time.Millisecond
	maxBackoff        = 2 * time.Second

	// readyWithin is how long a first try to connect may delay the daemon's readiness.
	readyWithin = 5 * time.Second
)

// Run keeps the connection up until ctx ends, and then returns nil. A libvirtd that is down is no
// error. Call it once.
func (c *Conn) Run(ctx context.Context) error {
	patience := time.AfterFunc(readyWithin, c.setReady)
	defer patience.Stop()
	backoff := retry.Backoff{First: minBackoff, Max: maxBackoff}
	for first := true; ctx.Err() == nil; first = false {
		l, err := c.connect(ctx)
		if err != nil {
			c.setReady()
			if first {
				c.log.Warn("libvirt is not reachable; trying on", "err", err)
			}
		} else {
			backoff.Reset()
			c.serve(ctx, l)
		}
		_ = backoff.Sleep(ctx) // its only error is the end of ctx
	}
	return nil
}

// connect makes a link with its subscriptions. Every session gets a new go-libvirt object:
// reconnecting an old one races inside go-libvirt.
func (c *Conn) connect(ctx context.Context) (*link, error) {
	l := &link{}
	for _, s := range l.core() {
		var err error
		if *s, err = c.dial(ctx); err != nil {
			l.close()
			return nil, err
		}
	}
	if err := c.subscribe(ctx, l.reads); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (c *Conn) serve(ctx context.Context, l *link) {
	c.setLink(l)
	c.log.Info("connected to libvirt")
	// After the subscriptions: a subscriber that reads everything again also finds the changes
	// before the first event.
	c.feed.Publish(hv.Event{Kind: hv.EventConnected})
	c.setReady()

	// Concurrently: libvirt looks at every emulator of the host before it answers. It may have
	// restarted with another configuration.
	var learning sync.WaitGroup
	learning.Go(func() {
		if _, err := c.learnUser(ctx, l.reads); err != nil && !errors.Is(err, hv.ErrUnavailable) {
			c.log.Warn("libvirt does not say as which user QEMU runs", "err", err)
		}
	})

	watch(ctx, l)

	c.setLink(nil)
	l.close()
	learning.Wait()
	c.feed.Publish(hv.Event{Kind: hv.EventDisconnected})
	if ctx.Err() == nil {
		c.log.Warn("lost the connection to libvirt; connecting again")
	}
}

// watch returns when the link is lost or ctx ends. It makes cheap calls as heartbeats: go-libvirt
// sends no keepalives, and libvirtd sends none unrequested.
func watch(ctx context.Context, l *link) {
	heartbeat := time.NewTicker(heartbeatInterval)
	defer heartbeat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.reads.lost():
			return
		case <-l.changes.lost():
			return
		case <-l.windows.lost():
			return
		case <-l.jobEnds.lost():
			return
		case <-heartbeat.C:
			_, err := call(ctx, l.reads, func(lv *golibvirt.Libvirt) (uint64, error) {
				return lv.ConnectGetLibVersion()
			})
			if errors.Is(err, hv.ErrUnavailable) {
				return
			}
		}
	}
}
