// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/medium"
)

// CheckNBDServers refuses invalid or repeated addresses of servers.
func CheckNBDServers(servers []string) error {
	for i, server := range servers {
		if err := medium.CheckServer("NBD server", server); err != nil {
			return fmt.Errorf("nbd_servers: %w", err)
		}
		if slices.Contains(servers[:i], server) {
			return fmt.Errorf("nbd_servers has %q twice", server)
		}
	}
	return nil
}
