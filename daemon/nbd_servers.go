// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
)

// checkNBDServers refuses invalid or repeated addresses of servers.
func checkNBDServers(servers []string) error {
	for i, server := range servers {
		if err := api.CheckServer("NBD server", server); err != nil {
			return fmt.Errorf("nbd_servers: %w", err)
		}
		if slices.Contains(servers[:i], server) {
			return fmt.Errorf("nbd_servers has %q twice", server)
		}
	}
	return nil
}
