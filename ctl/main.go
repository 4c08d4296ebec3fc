// SPDX-License-Identifier: Apache-2.0

// Command volferryctl is the operator's command line. It speaks the HTTP API over the Unix socket
// of the daemon or the registry, or over TLS to a registry.
package main

import (
	"os"

	"github.com/volferry/volferry/ctl/internal/command"
)

func main() {
	os.Exit(command.Main())
}
