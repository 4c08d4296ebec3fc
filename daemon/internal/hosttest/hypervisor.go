// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"
	"sync/atomic"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// Hypervisor is a daemon's fake hypervisor, with possible happenings at the calls below. The test
// itself uses Fake.
type Hypervisor struct {
	*hvtest.Fake
	Moments *Moments

	away atomic.Bool
}

// SetAway makes libvirt unreachable for the daemon only.
func (h *Hypervisor) SetAway(away bool) { h.away.Store(away) }

func (h *Hypervisor) call(name string, effect func() error) error {
	return h.Moments.Call(name, hv.ErrUnavailable, func() error {
		if h.away.Load() {
			return hv.ErrUnavailable
		}
		return effect()
	})
}

func read[T any](h *Hypervisor, name string, effect func() (T, error)) (v T, err error) {
	err = h.call(name, func() (err error) { v, err = effect(); return err })
	return v, err
}

// Domains implements hv.Hypervisor.
func (h *Hypervisor) Domains(ctx context.Context) ([]hv.Domain, error) {
	return read(h, "Domains", func() ([]hv.Domain, error) { return h.Fake.Domains(ctx) })
}

// Domain implements hv.Hypervisor.
func (h *Hypervisor) Domain(ctx context.Context, id string) (*hv.Domain, error) {
	return read(h, "Domain", func() (*hv.Domain, error) { return h.Fake.Domain(ctx, id) })
}

// RunState implements hv.Hypervisor.
func (h *Hypervisor) RunState(ctx context.Context, id string) (hv.RunState, error) {
	return read(h, "RunState", func() (hv.RunState, error) { return h.Fake.RunState(ctx, id) })
}

// TopImage implements hv.Hypervisor.
func (h *Hypervisor) TopImage(ctx context.Context, id, target string) (string, error) {
	return read(h, "TopImage", func() (string, error) { return h.Fake.TopImage(ctx, id, target) })
}

// AttachDisk implements hv.Hypervisor.
func (h *Hypervisor) AttachDisk(ctx context.Context, id string, where hv.Where, disk hv.DiskSpec) error {
	return h.call("AttachDisk", func() error { return h.Fake.AttachDisk(ctx, id, where, disk) })
}

// DetachDisk implements hv.Hypervisor.
func (h *Hypervisor) DetachDisk(ctx context.Context, id string, where hv.Where, target string) error {
	return h.call("DetachDisk", func() error { return h.Fake.DetachDisk(ctx, id, where, target) })
}

// SetConfigChain implements hv.Hypervisor.
func (h *Hypervisor) SetConfigChain(ctx context.Context, id, target string, chain []hv.Image) error {
	return h.call("SetConfigChain", func() error { return h.Fake.SetConfigChain(ctx, id, target, chain) })
}

// GrowDisk implements hv.Hypervisor.
func (h *Hypervisor) GrowDisk(ctx context.Context, id, target string, sizeBytes int64) error {
	return h.call("GrowDisk", func() error { return h.Fake.GrowDisk(ctx, id, target, sizeBytes) })
}

// DiskStats implements hv.Hypervisor.
func (h *Hypervisor) DiskStats(ctx context.Context, id, target string) (*hv.DiskStats, error) {
	return read(h, "DiskStats", func() (*hv.DiskStats, error) { return h.Fake.DiskStats(ctx, id, target) })
}

// DiskDefinition implements hv.Hypervisor.
func (h *Hypervisor) DiskDefinition(ctx context.Context, id string, where hv.Where, target string) (string, error) {
	return read(h, "DiskDefinition", func() (string, error) { return h.Fake.DiskDefinition(ctx, id, where, target) })
}

// Pools implements hv.Hypervisor.
func (h *Hypervisor) Pools(ctx context.Context) ([]hv.PoolInfo, error) {
	return read(h, "Pools", func() ([]hv.PoolInfo, error) { return h.Fake.Pools(ctx) })
}

// LookupVolume implements hv.Hypervisor.
func (h *Hypervisor) LookupVolume(ctx context.Context, pool, name string) (*hv.PoolVolume, error) {
	return read(h, "LookupVolume", func() (*hv.PoolVolume, error) { return h.Fake.LookupVolume(ctx, pool, name) })
}

// ExtendVolume implements hv.Hypervisor.
func (h *Hypervisor) ExtendVolume(ctx context.Context, pool, name string, sizeBytes int64) error {
	return h.call("ExtendVolume", func() error { return h.Fake.ExtendVolume(ctx, pool, name, sizeBytes) })
}

// PowerOn implements hv.Hypervisor.
func (h *Hypervisor) PowerOn(ctx context.Context, id string) error {
	return h.call("PowerOn", func() error { return h.Fake.PowerOn(ctx, id) })
}

// PowerOff implements hv.Hypervisor.
func (h *Hypervisor) PowerOff(ctx context.Context, id string) error {
	return h.call("PowerOff", func() error { return h.Fake.PowerOff(ctx, id) })
}

// Shutdown implements hv.Hypervisor.
func (h *Hypervisor) Shutdown(ctx context.Context, id string) error {
	return h.call("Shutdown", func() error { return h.Fake.Shutdown(ctx, id) })
}

// RebootGuest implements hv.Hypervisor.
func (h *Hypervisor) RebootGuest(ctx context.Context, id string) error {
	return h.call("RebootGuest", func() error { return h.Fake.RebootGuest(ctx, id) })
}

// Suspend implements hv.Hypervisor.
func (h *Hypervisor) Suspend(ctx context.Context, id string) error {
	return h.call("Suspend", func() error { return h.Fake.Suspend(ctx, id) })
}

// Resume implements hv.Hypervisor.
func (h *Hypervisor) Resume(ctx context.Context, id string) error {
	return h.call("Resume", func() error { return h.Fake.Resume(ctx, id) })
}

// DomainDefinition implements hv.Hypervisor.
func (h *Hypervisor) DomainDefinition(ctx context.Context, id string) (hv.DomainDefinition, error) {
	return read(h, "DomainDefinition", func() (hv.DomainDefinition, error) { return h.Fake.DomainDefinition(ctx, id) })
}

// DefineDomain implements hv.Hypervisor.
func (h *Hypervisor) DefineDomain(ctx context.Context, id string, def hv.DomainDefinition, disks []hv.DiskSpec) error {
	return h.call("DefineDomain", func() error { return h.Fake.DefineDomain(ctx, id, def, disks) })
}

// UndefineDomain implements hv.Hypervisor.
func (h *Hypervisor) UndefineDomain(ctx context.Context, id string) error {
	return h.call("UndefineDomain", func() error { return h.Fake.UndefineDomain(ctx, id) })
}
