// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"

	"github.com/volferry/volferry/internal/api"
)

// checks makes all checks once.
func (d *doctor) checks(ctx context.Context) []api.Check {
	out := d.libvirt(ctx)
	out = append(out, d.registry(ctx)...)
	out = append(out, d.endpoints(ctx)...)
	out = append(out, helpers(ctx)...)
	out = append(out, d.hook(ctx), d.definitions(), d.directories(), d.sharedDisk(), d.overlays(ctx), d.saves(), d.qemuImg(), d.storageDaemon())
	out = append(out, d.sharedOverlays()...)
	out = append(out, certificates(d.cfg)...)
	out = append(out, d.chain()...)
	out = append(out, d.pools(ctx)...)
	records, contradicted := d.records(ctx)
	out = append(out, records...)
	out = append(out, d.poolsGone(ctx, slices.DeleteFunc(d.uplink.VolumesHere(), contradicted))...)
	out = append(out, d.thinPools(ctx)...)
	out = append(out, d.clusters(ctx)...)
	out = append(out, d.reach(ctx)...)
	attached := d.uplink.AttachedHere()
	out = append(out, d.missing(ctx, attached)...)
	out = append(out, d.outside(ctx, attached)...)
	out = append(out, d.moves(ctx)...)
	out = append(out, api.CheckOps(d.ops()))
	out = append(out, d.sources(ctx)...)
	out = append(out, d.taints(ctx)...)
	out = append(out, d.limits())
	out = append(out, d.lost()...)
	return append(out, d.notes()...)
}
