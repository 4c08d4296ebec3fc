// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/process"
)

// Processes is what the kernel says of processes; process.Dir asks it, if it may.
type Processes interface {
	Claims(ctx context.Context, id string, images []process.Image) ([]process.Claim, error)
	About(ctx context.Context, pid int) (process.About, error)
}

// procDir is a variable for the tests.
var procDir process.Dir = "/proc"
