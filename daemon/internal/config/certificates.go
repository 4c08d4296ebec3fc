// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/volferry/volferry/internal/mtls"
)

// Lifetimes returns the lifetimes of this host's certificates. Without TLS there are none.
func (c *Config) Lifetimes() []mtls.Lifetime {
	if !c.OverTLS() {
		return nil
	}
	host := mtls.LifetimeOf("host", c.TLSCert)
	if _, err := c.Identity(); err != nil {
		host.Err = err
	}
	return []mtls.Lifetime{host, mtls.LifetimeOf("authority", c.TLSCA)}
}

// CertificateEnds returns the expiry of each certificate, by name.
func (c *Config) CertificateEnds() map[string]time.Time {
	ends := map[string]time.Time{}
	for _, l := range c.Lifetimes() {
		if l.Err == nil {
			ends[l.Name] = l.Until
		}
	}
	return ends
}
