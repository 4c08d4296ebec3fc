// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// maxTuneParams is the largest number of block I/O tuning parameters that libvirt's protocol
// allows in one call.
const maxTuneParams = 32

// byteLimits are the limits on the bytes per second of a disk; 0 means none.
type byteLimits struct {
	total, read, write uint64
}

func (w *writeLimits) LiveWriteLimit(ctx context.Context, id, target string) (int64, error) {
	live, err := w.limits(ctx, id, target)
	return int64(live.write), err //nolint:gosec // libvirt bounds it below 2^63
}

// PutWriteLimit implements hv.Hypervisor. libvirt sets the three byte limits as one group, so the
// call also sends the owner's read limit.
func (w *writeLimits) PutWriteLimit(ctx context.Context, id, target string, bytesPerSecond int64) error {
	live, err := w.limits(ctx, id, target)
	if err != nil {
		return err
	}
	if live.total != 0 {
		return totalLimited(id, target)
	}
	return w.putLimits(ctx, id, target, byteLimits{read: live.read, write: uint64(bytesPerSecond)}) //nolint:gosec // not negative
}

// totalLimited returns the error for a disk with an owner's limit on reads and writes together:
// libvirt accepts no separate write limit then.
func totalLimited(id, target string) error {
	return fmt.Errorf("limit writes of disk %s of domain %s: %w: it has a limit on its total throughput", target, id, hv.ErrUnsupported)
}

func (w *writeLimits) putLimits(ctx context.Context, id, target string, to byteLimits) error {
	params := []golibvirt.TypedParam{
		{Field: golibvirt.DomainBlockIotuneReadBytesSec, Value: *golibvirt.NewTypedParamValueUllong(to.read)},
		{Field: golibvirt.DomainBlockIotuneWriteBytesSec, Value: *golibvirt.NewTypedParamValueUllong(to.write)},
	}
	return w.calls.change(ctx, "limit writes of", id, target,
		func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			return lv.DomainSetBlockIOTune(dom, target, params, uint32(golibvirt.DomainAffectLive))
		})
}

func (w *writeLimits) limits(ctx context.Context, id, target string) (byteLimits, error) {
	s, err := w.connection.reads()
	if err != nil {
		return byteLimits{}, fmt.Errorf("read limits of disk %s of domain %s: %w", target, id, err)
	}
	return onLive(ctx, w.calls, s, "read limits of", id, target,
		func(lv *golibvirt.Libvirt, dom golibvirt.Domain) (byteLimits, error) {
			// With 0 parameters libvirt would return only their number.
			params, _, err := lv.DomainGetBlockIOTune(dom, golibvirt.OptString{target}, maxTuneParams, uint32(golibvirt.DomainAffectLive))
			var limits byteLimits
			for _, p := range params {
				n, _ := p.Value.I.(uint64)
				switch p.Field {
				case golibvirt.DomainBlockIotuneTotalBytesSec:
					limits.total = n
				case golibvirt.DomainBlockIotuneReadBytesSec:
					limits.read = n
				case golibvirt.DomainBlockIotuneWriteBytesSec:
					limits.write = n
				}
			}
			return limits, err
		})
}

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
