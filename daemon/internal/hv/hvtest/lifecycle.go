// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// PowerOn implements hv.Hypervisor.
func (f *Fake) PowerOn(context.Context, string) error { return hv.ErrUnsupported }

// Shutdown implements hv.Hypervisor.
func (f *Fake) Shutdown(context.Context, string) error { return hv.ErrUnsupported }

// RebootGuest implements hv.Hypervisor.
func (f *Fake) RebootGuest(context.Context, string) error { return hv.ErrUnsupported }

// DomainDefinition implements hv.Hypervisor.
func (f *Fake) DomainDefinition(context.Context, string) (hv.DomainDefinition, error) {
	return hv.DomainDefinition{}, hv.ErrUnsupported
}

// DefineDomain implements hv.Hypervisor.
func (f *Fake) DefineDomain(context.Context, string, hv.DomainDefinition, []hv.DiskSpec) error {
	return hv.ErrUnsupported
}

// UndefineDomain implements hv.Hypervisor.
func (f *Fake) UndefineDomain(context.Context, string) error { return hv.ErrUnsupported }

// SaveMemory implements hv.Hypervisor.
func (f *Fake) SaveMemory(context.Context, string, string) error { return hv.ErrUnsupported }

// RestoreMemory implements hv.Hypervisor.
func (f *Fake) RestoreMemory(context.Context, string, string, map[string][]hv.Image, bool) error {
	return hv.ErrUnsupported
}
