// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// PowerOn implements hv.Hypervisor.
func (c *Conn) PowerOn(context.Context, string) error { return hv.ErrUnsupported }

// Shutdown implements hv.Hypervisor.
func (c *Conn) Shutdown(context.Context, string) error { return hv.ErrUnsupported }

// RebootGuest implements hv.Hypervisor.
func (c *Conn) RebootGuest(context.Context, string) error { return hv.ErrUnsupported }

// DomainDefinition implements hv.Hypervisor.
func (c *Conn) DomainDefinition(context.Context, string) (hv.DomainDefinition, error) {
	return hv.DomainDefinition{}, hv.ErrUnsupported
}

// DefineDomain implements hv.Hypervisor.
func (c *Conn) DefineDomain(context.Context, string, hv.DomainDefinition, []hv.DiskSpec) error {
	return hv.ErrUnsupported
}

// UndefineDomain implements hv.Hypervisor.
func (c *Conn) UndefineDomain(context.Context, string) error { return hv.ErrUnsupported }

// SaveMemory implements hv.Hypervisor.
func (c *Conn) SaveMemory(context.Context, string, string) error { return hv.ErrUnsupported }

// RestoreMemory implements hv.Hypervisor.
func (c *Conn) RestoreMemory(context.Context, string, string, map[string][]hv.Image, bool) error {
	return hv.ErrUnsupported
}
