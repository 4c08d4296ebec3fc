// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"slices"

	"github.com/volferry/volferry/internal/api"
)

// Checks makes all checks once.
func (d *Doctor) Checks(ctx context.Context) []api.Check {
	out := d.libvirt(ctx)
	out = append(out, d.registry(ctx)...)
	out = append(out, d.Endpoints(ctx)...)
	out = append(out, Helpers(ctx)...)
	out = append(out, ownConfinement("/")...)
	out = append(out, d.hook(ctx), d.definitions(), d.directories(), d.sharedDisk(), d.overlays(ctx), d.saves(), d.qemuImg(), d.storageDaemon())
	out = append(out, d.sharedOverlays()...)
	out = append(out, Certificates(d.Cfg)...)
	out = append(out, d.Chain()...)
	out = append(out, d.Pools(ctx)...)
	records, contradicted := d.records(ctx)
	out = append(out, records...)
	out = append(out, d.poolsGone(ctx, slices.DeleteFunc(d.Uplink.VolumesHere(), contradicted))...)
	out = append(out, d.thinPools(ctx)...)
	out = append(out, d.Clusters(ctx)...)
	out = append(out, d.reach(ctx)...)
	attached := d.Uplink.AttachedHere()
	out = append(out, d.missing(ctx, attached)...)
	out = append(out, d.outside(ctx, attached)...)
	out = append(out, d.moves(ctx)...)
	out = append(out, api.CheckOps(d.Ops()))
	out = append(out, d.sources(ctx)...)
	out = append(out, d.taints(ctx)...)
	out = append(out, d.limits())
	out = append(out, d.Lost()...)
	return append(out, d.notes()...)
}
