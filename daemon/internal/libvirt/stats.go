// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// DiskStats reads the counters of the live disk.
func (w *writeLimits) DiskStats(ctx context.Context, id, target string) (*hv.DiskStats, error) {
	s, err := w.connection.reads()
	if err != nil {
		return nil, fmt.Errorf("read statistics of domain %s: %w", id, err)
	}
	params, err := onLive(ctx, w.calls, s, "read statistics of", id, target,
		func(lv *golibvirt.Libvirt, dom golibvirt.Domain) ([]golibvirt.TypedParam, error) {
			records, err := lv.ConnectGetAllDomainStats([]golibvirt.Domain{dom}, uint32(golibvirt.DomainStatsBlock), 0)
			if err != nil || len(records) == 0 {
				return nil, err
			}
			return records[0].Params, nil
		})
	if err != nil {
		return nil, err
	}
	stats, err := statsOf(params, target)
	if err != nil {
		return nil, fmt.Errorf("read statistics of disk %s of domain %s: %w", target, id, err)
	}
	return stats, nil
}

// statsOf extracts one disk from the flat list block.0.name, block.0.rd.reqs, ..., block.1.name,
// ...
func statsOf(params []golibvirt.TypedParam, target string) (*hv.DiskStats, error) {
	values := make(map[string]any, len(params))
	for _, p := range params {
		values[p.Field] = p.Value.I
	}
	for i := 0; ; i++ {
		prefix := fmt.Sprintf("%s%d", golibvirt.DomainStatsBlockPrefix, i)
		name, ok := values[prefix+golibvirt.DomainStatsBlockSuffixName]
		if !ok {
			return nil, fmt.Errorf("%w: no such disk", hv.ErrNotFound)
		}
		if name != target {
			continue
		}
		if _, active := values[prefix+golibvirt.DomainStatsBlockSuffixWrReqs]; !active {
			return nil, hv.ErrNotActive
		}
		get := func(suffix string) int64 {
			n, _ := values[prefix+suffix].(uint64)
			return int64(n)
		}
		return &hv.DiskStats{
			ReadRequests:    get(golibvirt.DomainStatsBlockSuffixRdReqs),
			ReadBytes:       get(golibvirt.DomainStatsBlockSuffixRdBytes),
			ReadTime:        time.Duration(get(golibvirt.DomainStatsBlockSuffixRdTimes)),
			WriteRequests:   get(golibvirt.DomainStatsBlockSuffixWrReqs),
			WriteBytes:      get(golibvirt.DomainStatsBlockSuffixWrBytes),
			WriteTime:       time.Duration(get(golibvirt.DomainStatsBlockSuffixWrTimes)),
			FlushRequests:   get(golibvirt.DomainStatsBlockSuffixFlReqs),
			FlushTime:       time.Duration(get(golibvirt.DomainStatsBlockSuffixFlTimes)),
			AllocationBytes: get(golibvirt.DomainStatsBlockSuffixAllocation),
			CapacityBytes:   get(golibvirt.DomainStatsBlockSuffixCapacity),
		}, nil
	}
}
