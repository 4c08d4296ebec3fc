// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"time"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/internal/api"
)

var renewals = map[string]string{
	"host":      "make a new one at the registry (volferry-registry issue-cert host NAME --replace) and put it in place; nothing needs to be restarted",
	"authority": "the registry gets a new authority in time: copy its ca.crt, and have this host's certificate issued anew",
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
