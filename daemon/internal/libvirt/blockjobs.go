// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
	"github.com/volferry/volferry/daemon/internal/libvirt/qmp"
	"github.com/volferry/volferry/internal/medium"
)

func (j *blockJobs) BlockCopy(ctx context.Context, id, target string, dst hv.Image, opts hv.BlockCopyOptions) error {
	doc, err := domainxml.CopyXML(append([]hv.Image{dst}, opts.Backing...), j.clusters)
	if err != nil {
		return fmt.Errorf("copy disk %s of domain %s: %w", target, id, err)
	}
	// Without TRANSIENT_JOB libvirt refuses persistent domains. The job need not survive the
	// domain.
	flags := golibvirt.DomainBlockCopyReuseExt | golibvirt.DomainBlockCopyTransientJob
	if opts.Shallow {
		flags |= golibvirt.DomainBlockCopyShallow
	}
	if opts.Synchronous {
		flags |= golibvirt.DomainBlockCopySynchronousWrites
	}
	var params []golibvirt.TypedParam
	if opts.BandwidthBytesPerSecond > 0 {
		params = append(params, golibvirt.TypedParam{
			Field: golibvirt.DomainBlockCopyBandwidth,
			Value: *golibvirt.NewTypedParamValueUllong(uint64(opts.BandwidthBytesPerSecond)),
		})
	}
	if opts.GranularityBytes > 0 {
		params = append(params, golibvirt.TypedParam{
			Field: golibvirt.DomainBlockCopyGranularity,
			Value: *golibvirt.NewTypedParamValueUint(uint32(opts.GranularityBytes)),
		})
	}
	return j.leases.takingImage(ctx, id, dst, func() error {
		return j.calls.change(ctx, "copy", id, target, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			return lv.DomainBlockCopy(dom, target, doc, params, flags)
		})
	})
}

func (j *blockJobs) CommitActive(ctx context.Context, id, target string, bytesPerSecond int64) error {
	// With SHALLOW and an explicit base, libvirt checks that the two agree. Without either it
	// would commit into the bottom of the chain, which may be a template that others use.
	const flags = golibvirt.DomainBlockCommitActive | golibvirt.DomainBlockCommitShallow |
		golibvirt.DomainBlockCommitBandwidthBytes
	base, image, err := j.directBacking(ctx, id, target)
	if err != nil {
		return fmt.Errorf("commit disk %s of domain %s: %w", target, id, err)
	}
	return j.leases.takingImage(ctx, id, image, func() error {
		return j.calls.change(ctx, "commit", id, target, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			return lv.DomainBlockCommit(dom, target, golibvirt.OptString{base}, nil, uint64(bytesPerSecond), flags)
		})
	})
}

// directBacking returns the live image below the top, and libvirt's name for it, such as vda[5].
func (j *blockJobs) directBacking(ctx context.Context, id, target string) (name string, image hv.Image, err error) {
	s, err := j.connection.reads()
	if err != nil {
		return "", image, err
	}
	doc, err := onLive(ctx, j.calls, s, "read XML of", id, "",
		func(lv *golibvirt.Libvirt, dom golibvirt.Domain) (string, error) { return lv.DomainGetXMLDesc(dom, 0) })
	if err != nil {
		return "", image, err
	}
	if name, err = domainxml.BackingName(doc, target); err != nil {
		return "", image, err
	}
	dom, err := domainxml.ParseDomain(doc, nil, j.clusters)
	if err != nil {
		return "", image, err
	}
	for i := range dom.Disks {
		if d := &dom.Disks[i]; d.Target == target && len(d.Chain) > 1 {
			image = d.Chain[1]
		}
	}
	return name, image, nil
}

func (j *blockJobs) Job(ctx context.Context, id, target string) (*hv.Job, error) {
	s, err := j.connection.reads()
	if err != nil {
		return nil, fmt.Errorf("read block job of disk %s of domain %s: %w", target, id, err)
	}
	return onLive(ctx, j.calls, s, "read block job of", id, target,
		func(lv *golibvirt.Libvirt, dom golibvirt.Domain) (*hv.Job, error) {
			found, kind, bandwidth, cur, end, err := lv.DomainGetBlockJobInfo(dom, target,
				uint32(golibvirt.DomainBlockJobInfoBandwidthBytes))
			if err != nil || found == 0 {
				return nil, err
			}
			return &hv.Job{
				Kind:                    jobKind(golibvirt.DomainBlockJobType(kind)),
				Current:                 int64(cur),
				End:                     int64(end),
				BandwidthBytesPerSecond: int64(bandwidth),
				Tracking:                tracking(cur, end),
			}, nil
		})
}

// tracking reports whether a job follows all writes of the guest. cur and end are libvirt's
// version of QEMU's counters. QEMU's mirror sets its length (len in query-block-jobs) before it
// copies, and copies after it has told its filter to report the guest's writes (mirror_run). Until
// then the length is 0. It is also 0 if there is nothing to copy, but then the job is ready at
// once. libvirt converts a length of 0 to 1, and for a ready job also cur to 1
// (qemuBlockJobInfoTranslate). Every other length is a multiple of at least 512.
func tracking(cur, end uint64) bool { return end > 1 || end == 1 && cur == end }

func jobKind(t golibvirt.DomainBlockJobType) hv.JobKind {
	switch t {
	case golibvirt.DomainBlockJobTypeCopy:
		return hv.JobCopy
	case golibvirt.DomainBlockJobTypeActiveCommit:
		return hv.JobActiveCommit
	case golibvirt.DomainBlockJobTypeBackup:
		return hv.JobBackup
	case golibvirt.DomainBlockJobTypeUnknown, golibvirt.DomainBlockJobTypePull, golibvirt.DomainBlockJobTypeCommit:
	}
	return hv.JobOther
}

func (j *blockJobs) SetJobBandwidth(ctx context.Context, id, target string, bytesPerSecond int64) error {
	return j.calls.change(ctx, "set block job speed of", id, target,
		func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			return lv.DomainBlockJobSetSpeed(dom, target, uint64(bytesPerSecond), golibvirt.DomainBlockJobSpeedBandwidthBytes)
		})
}

// Pivot ends a ready job by making its target the live disk. libvirt answers when it has closed
// the old images. If the persistent definition named the disk's old chain, it then names the new
// one.
func (j *blockJobs) Pivot(ctx context.Context, id, target string) error {
	err := j.leases.leavingNoLease(ctx, id, target, true, func() error {
		return j.calls.endJob(ctx, "pivot", id, target, keptDefinitions, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			return lv.DomainBlockJobAbort(dom, target, golibvirt.DomainBlockJobAbortPivot)
		})
	})
	if said(err, golibvirt.ErrBlockCopyActive) {
		return fmt.Errorf("%w: %w", hv.ErrNotReady, err)
	}
	return err
}

func (j *blockJobs) AbortJob(ctx context.Context, id, target string) error {
	err := j.leases.leavingNoLease(ctx, id, target, false, func() error {
		return j.calls.endJob(ctx, "abort block job of", id, target, keptNothing, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			return lv.DomainBlockJobAbort(dom, target, 0)
		})
	})
	if errors.Is(err, hv.ErrNotActive) {
		return nil
	}
	if !said(err, golibvirt.ErrInvalidArg) || errors.Is(err, hv.ErrNotFound) {
		return err
	}
	// libvirt also answers "invalid argument" for a disk without a job.
	job, readErr := j.Job(ctx, id, target)
	if readErr == nil && job == nil {
		return nil
	}
	return err
}

// yanked is a node that QEMU's yank disconnects.
type yanked struct {
	Type string `json:"type"`
	Node string `json:"node-name"`
}

// EndConnections implements hv.Hypervisor. It uses QEMU's command yank (QEMU 6.0,
// docs/interop/qemu-qmp-ref), because libvirt has no call for it.
func (j *blockJobs) EndConnections(ctx context.Context, id, address string) error {
	nodes, err := j.calls.blockNodes(ctx, id)
	if err != nil || !medium.Of(address).Severable {
		return err
	}
	names, _, err := qmp.NodesAt(nodes, address, j.clusters)
	if err != nil {
		return err
	}
	var connections []yanked
	for _, name := range names {
		connections = append(connections, yanked{Type: "block-node", Node: name})
	}
	if len(connections) == 0 {
		return nil
	}
	return j.calls.monitor(ctx, "end the connections to "+address+" of", id, "", qmp.Command{Execute: "yank", Arguments: map[string][]yanked{"instances": connections}}, nil)
}
