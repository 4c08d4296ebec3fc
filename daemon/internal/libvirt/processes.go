// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/process"
)

// Processes reads what the kernel knows of processes; process.Dir implements it with sufficient
// privileges.
type Processes interface {
	Claims(ctx context.Context, id string, images []process.Image) ([]process.Claim, error)
	About(ctx context.Context, pid int) (process.About, error)
}

// procDir is a variable for the tests.
var procDir process.Dir = "/proc"
