// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"time"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/internal/api"
)

var renewals = map[string]string{
	"host":      "make a new certificate at the registry (volferry-registry issue-cert host NAME --replace) and copy it to this host; no restart is needed",
	"authority": "give the registry a new authority before that date, copy its ca.crt to this host, and issue a new certificate for this host",
}

// Certificates checks the expiry of this host's certificates: the registry identifies the host by
// them.
func Certificates(c *config.Config) []api.Check {
	var checks []api.Check
	for _, l := range c.Lifetimes() {
		checks = append(checks, l.Check(time.Now(), renewals[l.Name]))
	}
	return checks
}
