// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// The calls of the hypervisor that an attachment makes, each a moment at which
// something may happen.

func (w *world) Domains(ctx context.Context) (all []hv.Domain, err error) {
	err = w.onHV(func() (err error) { all, err = w.Fake.Domains(ctx); return err })
	return all, err
}

func (w *world) Domain(ctx context.Context, id string) (dom *hv.Domain, err error) {
	err = w.onHV(func() (err error) { dom, err = w.Fake.Domain(ctx, id); return err })
	return dom, err
}

func (w *world) AttachDisk(ctx context.Context, id string, where hv.Where, disk hv.DiskSpec) error {
	return w.onHV(func() error { return w.Fake.AttachDisk(ctx, id, where, disk) })
}

func (w *world) DetachDisk(ctx context.Context, id string, where hv.Where, target string) error {
	return w.onHV(func() error { return w.Fake.DetachDisk(ctx, id, where, target) })
}

func (w *world) DiskDefinition(ctx context.Context, id string, where hv.Where, target string) (def string, err error) {
	err = w.onHV(func() (err error) { def, err = w.Fake.DiskDefinition(ctx, id, where, target); return err })
	return def, err
}

func (w *world) Pools(ctx context.Context) (all []hv.PoolInfo, err error) {
	err = w.onHV(func() (err error) { all, err = w.Fake.Pools(ctx); return err })
	return all, err
}

func (w *world) LookupVolume(ctx context.Context, pool, name string) (vol *hv.PoolVolume, err error) {
	err = w.onHV(func() (err error) { vol, err = w.Fake.LookupVolume(ctx, pool, name); return err })
	return vol, err
}
