// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// AttachDisk implements hv.Hypervisor.
func (c *Fake) AttachDisk(context.Context, string, hv.Where, hv.DiskSpec) error {
	return hv.ErrUnsupported
}

// DetachDisk implements hv.Hypervisor.
func (c *Fake) DetachDisk(context.Context, string, hv.Where, string) error { return hv.ErrUnsupported }

// DiskDefinition implements hv.Hypervisor.
func (c *Fake) DiskDefinition(context.Context, string, hv.Where, string) (string, error) {
	return "", hv.ErrUnsupported
}
