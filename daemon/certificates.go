// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/volferry/volferry/internal/mtls"
)

// lifetimes returns the lifetimes of this host's certificates; none without TLS.
func (c *config) lifetimes() []mtls.Lifetime {
	if !c.overTLS() {
		return nil
	}
	host := mtls.LifetimeOf("host", c.TLSCert)
	if _, err := c.identity(); err != nil {
		host.Err = err
	}
	return []mtls.Lifetime{host, mtls.LifetimeOf("authority", c.TLSCA)}
}

// certificateEnds returns the expiry of each certificate, by name.
func (c *config) certificateEnds() map[string]time.Time {
	ends := map[string]time.Time{}
	for _, l := range c.lifetimes() {
		if l.Err == nil {
			ends[l.Name] = l.Until
		}
	}
	return ends
}
