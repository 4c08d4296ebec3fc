// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// maxTuneParams is the most that the protocol lets a client ask for.
const maxTuneParams = 32

// byteLimits are the limits on the bytes per second of a disk; 0 is none.
type byteLimits struct {
	total, read, write uint64
}

// SetWriteLimit throttles the guest's writes to the live disk. libvirt sets the
// three byte limits as one group, so the owner's read limit is sent along, and
// the owner's write limit is found in the persistent definition.
func (c *Conn) SetWriteLimit(ctx context.Context, id, target string, bytesPerSecond int64) error {
	own, err := c.ownLimits(ctx, id, target)
	if err != nil {
		return err
	}
	if own.total != 0 {
		if bytesPerSecond == 0 {
			return nil // there was never one of ours
		}
		return totalLimited(id, target)
	}
	write := own.write
	if limit := uint64(bytesPerSecond); limit > 0 && (write == 0 || limit < write) {
		write = limit
	}
	return c.putLimits(ctx, id, target, byteLimits{read: own.read, write: write})
}

// LiveWriteLimit implements hv.Hypervisor.
func (c *Conn) LiveWriteLimit(ctx context.Context, id, target string) (int64, error) {
	live, err := c.limits(ctx, id, target, golibvirt.DomainAffectLive)
	return int64(live.write), err //nolint:gosec // libvirt bounds it below 2^63
}

// PutWriteLimit implements hv.Hypervisor.
func (c *Conn) PutWriteLimit(ctx context.Context, id, target string, bytesPerSecond int64) error {
	live, err := c.limits(ctx, id, target, golibvirt.DomainAffectLive)
	if err != nil {
		return err
	}
	if live.total != 0 {
		return totalLimited(id, target)
	}
	return c.putLimits(ctx, id, target, byteLimits{read: live.read, write: uint64(bytesPerSecond)}) //nolint:gosec // not negative
}

// totalLimited refuses a disk whose owner limits reads and writes together, beside which libvirt
// takes no limit of its writes.
func totalLimited(id, target string) error {
	return fmt.Errorf("limit writes of disk %s of domain %s: %w: it has a limit on its total throughput", target, id, hv.ErrUnsupported)
}

// putLimits sets the limits on reads and on writes, which libvirt takes together.
func (c *Conn) putLimits(ctx context.Context, id, target string, to byteLimits) error {
	params := []golibvirt.TypedParam{
		{Field: golibvirt.DomainBlockIotuneReadBytesSec, Value: *golibvirt.NewTypedParamValueUllong(to.read)},
		{Field: golibvirt.DomainBlockIotuneWriteBytesSec, Value: *golibvirt.NewTypedParamValueUllong(to.write)},
	}
	return c.change(ctx, "limit writes of", id, target,
		func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			return lv.DomainSetBlockIOTune(dom, target, params, uint32(golibvirt.DomainAffectLive))
		})
}

// ownLimits reads what the owner of the domain has set: the live limits, but
// the write limit of the definition, since the live one may be ours.
func (c *Conn) ownLimits(ctx context.Context, id, target string) (byteLimits, error) {
	own, err := c.limits(ctx, id, target, golibvirt.DomainAffectLive)
	if err != nil {
		return byteLimits{}, err
	}
	dom, err := c.Domain(ctx, id)
	if err != nil {
		return byteLimits{}, err
	}
	own.write = 0
	if dom.ConfigDisk(target) == nil {
		return own, nil
	}
	config, err := c.limits(ctx, id, target, golibvirt.DomainAffectConfig)
	if err != nil {
		return byteLimits{}, err
	}
	own.write = config.write
	return own, nil
}

func (c *Conn) limits(ctx context.Context, id, target string, of golibvirt.DomainModificationImpact) (byteLimits, error) {
	s, err := c.reads()
	if err != nil {
		return byteLimits{}, fmt.Errorf("read limits of disk %s of domain %s: %w", target, id, err)
	}
	return onLive(ctx, c, s, c.callTimeout, "read limits of", id, target,
		func(lv *golibvirt.Libvirt, dom golibvirt.Domain) (byteLimits, error) {
			// Asked with 0 for the number of parameters it would answer with
			// the number only.
			params, _, err := lv.DomainGetBlockIOTune(dom, golibvirt.OptString{target}, maxTuneParams, uint32(of))
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
