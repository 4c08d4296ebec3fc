// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// sizesEvery is how often the images of this host are looked at. Nothing tells of a
// `virsh blockresize`, a `qemu-img resize` or a volume group: it has to be seen.
const sizesEvery = 30 * time.Second

// Run compares the sizes of this host's volumes now and then, until ctx ends, and has the
// registry store the size of those that have grown.
func (m *Manager) Run(ctx context.Context) error {
	tick := time.NewTicker(sizesEvery)
	defer tick.Stop()
	warned := map[string]int64{}
	for {
		m.lookAtSizes(ctx, warned)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// lookAtSizes looks at every volume once. Warned are the sizes of those that were
// complained about, by volume, so that the log says it once.
func (m *Manager) lookAtSizes(ctx context.Context, warned map[string]int64) {
	id, err := m.host(ctx)
	if err != nil {
		return // the registry does not know this host yet
	}
	host, err := m.env.Registry.Host(ctx, id)
	if err != nil {
		return
	}
	volumes, err := m.env.Registry.Volumes(ctx)
	if err != nil {
		return // the next look asks again
	}
	for i := range volumes {
		v := &volumes[i]
		if ctx.Err() != nil {
			return
		}
		if !looksAfter(v, host) {
			continue
		}
		info, err := m.env.Images.Inspect(ctx, v.Location)
		if err != nil || v.Location.VolumeBytes(info.SizeBytes) == v.SizeBytes || warned[v.ID] == info.SizeBytes {
			continue // an image that is away is found out about by who wants to use it
		}
		if _, err := request.TakeSize(ctx, m.env.Registry, v.ID, v.Name, v.Location, info.SizeBytes); err != nil {
			m.log.Warn("the size of a volume's image is another than the registry's", "volume", v.Name, "err", err)
			if !request.Away(err) {
				warned[v.ID] = info.SizeBytes
			}
			continue
		}
		m.log.Info("a volume has grown", slog.String("volume", v.Name), slog.Int64("from_bytes", v.SizeBytes), slog.Int64("to_bytes", info.SizeBytes))
	}
}

// looksAfter says whether this host is the one to look at a volume: it has the guest, or
// the image where nothing has it. One that moves is left until that is over.
func looksAfter(v *api.Volume, host api.Host) bool {
	mine := func(name string) bool { return name == host.Name || name == host.ID }
	if v.MigrationID != "" || v.Location.Path == "" || (v.Status != api.VolumeAvailable && v.Status != api.VolumeInUse) {
		return false
	}
	if len(v.Attachments) == 0 {
		return mine(v.Host)
	}
	return slices.ContainsFunc(v.Attachments, func(a api.Attachment) bool { return mine(a.Host) })
}
