// SPDX-License-Identifier: Apache-2.0

// Program nvme is the connector of a subsystem of NVMe over TCP. Its volumes are the subsystem's
// namespaces, by the names that udev gives them in /dev/disk/by-id. Its options are nqn, the name
// of the subsystem, and addresses, one or more of HOST:PORT, separated by commas.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/volferry/volferry/daemon/connectors/internal/command"
	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
)

func main() {
	c := nvme{
		Devices: target.Host(func(devices []string) (int, error) { return target.Opener(devices) }),
		run:     command.Run, installed: command.Installed, state: target.StateDir,
	}
	if err := connector.Serve(context.Background(), os.Stdin, os.Stdout, c.handle); err != nil {
		fmt.Fprintf(os.Stderr, "nvme: %v\n", err)
		os.Exit(1)
	}
}
