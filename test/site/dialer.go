// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// machineConfig is the configuration that the helper programs of a machine's package read.
const machineConfig = "/etc/volferry/volferryd.toml"

// nbdServers are the NBD servers that the dialer of the machine may connect to.
var nbdServers struct {
	sync.Mutex
	addresses []string
}

// AllowNBDServers lets daemons that systemd starts connect to NBD servers over TCP: the dialer of
// the machine connects for them, and it reads nbd_servers of the machine's configuration instead of
// the flags of a daemon. For other daemons it does nothing.
func AllowNBDServers(addresses ...string) error {
	if os.Getenv(unitVar) == "" {
		return nil
	}
	nbdServers.Lock()
	defer nbdServers.Unlock()
	nbdServers.addresses = append(nbdServers.addresses, addresses...)
	text, err := os.ReadFile(machineConfig)
	if err != nil {
		return fmt.Errorf("allow NBD servers: %w", err)
	}
	// The dialer may read it now.
	if err := os.WriteFile(machineConfig+".new", withNBDServers(string(text), nbdServers.addresses), 0o644); err != nil {
		return fmt.Errorf("allow NBD servers: %w", err)
	}
	return os.Rename(machineConfig+".new", machineConfig)
}

// withNBDServers returns a configuration with these servers, at its beginning: a later key may be
// one of a table.
func withNBDServers(config string, addresses []string) []byte {
	const key = "nbd_servers = "
	lines := slices.DeleteFunc(strings.SplitAfter(config, "\n"), func(line string) bool { return strings.HasPrefix(line, key) })
	return fmt.Appendf(nil, "%s[\"%s\"]\n%s", key, strings.Join(addresses, `", "`), strings.Join(lines, ""))
}
