// SPDX-License-Identifier: Apache-2.0

// Program lvm is the connector of a thin pool of LVM; libvirt cannot create volumes in one. Its
// options are vg, a volume group, vg_uuid, its UUID, and thin_pool, a thin pool in it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/volferry/volferry/daemon/connectors/internal/command"
	"github.com/volferry/volferry/daemon/internal/connector"
)

// quieten stops LVM's warning about each inherited file descriptor: after these the error itself
// would be cut off.
func quieten() error { return os.Setenv("LVM_SUPPRESS_FD_WARNINGS", "1") }

func main() {
	if err := quieten(); err != nil {
		fmt.Fprintf(os.Stderr, "lvm: %v\n", err)
		os.Exit(1)
	}
	c := lvm{run: command.Run}
	if err := connector.Serve(context.Background(), os.Stdin, os.Stdout, c.handle); err != nil {
		fmt.Fprintf(os.Stderr, "lvm: %v\n", err)
		os.Exit(1)
	}
}
