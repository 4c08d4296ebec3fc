// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// AttachDisk implements hv.Hypervisor.
func (c *Conn) AttachDisk(context.Context, string, hv.Where, hv.DiskSpec) error {
	return hv.ErrUnsupported
}

// DetachDisk implements hv.Hypervisor.
func (c *Conn) DetachDisk(context.Context, string, hv.Where, string) error { return hv.ErrUnsupported }

// DiskDefinition implements hv.Hypervisor.
func (c *Conn) DiskDefinition(context.Context, string, hv.Where, string) (string, error) {
	return "", hv.ErrUnsupported
}
