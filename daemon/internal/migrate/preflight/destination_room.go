// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// checkDestinationSpace refuses a dst without enough space: a sparse file needs the allocated
// bytes of src, other images the whole size. It adds a note if a sparse file may outgrow the free
// space.
func (sp *Space) checkDestinationSpace(s *move.Spec, free int64) error {
	need := sp.NeededBytes(s)
	if free < need {
		return api.Errorf(api.CodeNoSpace, "%s has %s free and volume %s takes %s", filepath.Dir(s.Dst.Path), humanize.ExactBytes(free), s.VolumeName, humanize.ExactBytes(need)).
			With("free_bytes", free).With("needed_bytes", need)
	}
	if whole := s.Dst.WholeBytes(); free < whole {
		where := filepath.Dir(s.Dst.Path)
		if s.Dst.Pool != "" {
			where = "pool " + s.Dst.Pool
		}
		s.RoomNote = fmt.Sprintf("volume %s may grow to %s, and %s had %s free when the move was asked for: what guests write may fill it",
			s.VolumeName, humanize.Bytes(whole), where, humanize.Bytes(free))
	}
	return nil
}

// NeededBytes returns the most space that dst may take. The result is too low if a raw src has
// scattered data, which takes whole clusters of a qcow2 dst.
func (sp *Space) NeededBytes(s *move.Spec) int64 {
	need, sparse := s.DstRoomBytes(), s.DstKind().Filesystem
	if s.Allocation == api.AllocationThick || s.MirrorFills && sparse {
		return s.DstFileBytes()
	}
	if n, known := sp.allocatedBytes(s); known && sparse {
		need = min(need, n)
	}
	return need
}

// allocatedBytes returns the most space that a copy of src needs, with the base images that dst
// does not keep. known is false if one of these images is a device.
func (sp *Space) allocatedBytes(s *move.Spec) (total int64, known bool) {
	chain, times := s.SrcChain(), int64(1)
	if s.KeepsBase() { // each cluster of the top takes a cluster of dst, which may be larger
		chain = chain[:1]
		clusterBytes, err := sp.files.ClusterBytes(s.Src.Path)
		if err != nil {
			return 0, false
		}
		times = max(1, image.ClusterBytes/clusterBytes)
	}
	for _, img := range chain {
		n, err := sp.files.AllocatedBytes(img.Path)
		if err != nil || img.Type == hv.SourceBlock {
			return 0, false
		}
		total += times * n
	}
	return total, true
}

// DestinationFreeBytes returns the free space for dst, including an overwritten file's space.
func (sp *Space) DestinationFreeBytes(ctx context.Context, s *move.Spec) (int64, error) {
	if !s.CreateDst {
		free, err := sp.files.FreeBytes(filepath.Dir(s.Dst.Path))
		if err != nil {
			return 0, err
		}
		has, err := sp.files.AllocatedBytes(s.Dst.Path)
		return free + has, err
	}
	if s.Dst.Pool == "" {
		return sp.files.FreeBytes(filepath.Dir(s.Dst.Path))
	}
	pools, err := sp.pools.Pools(ctx)
	if err != nil {
		return 0, request.NoHypervisor(err)
	}
	pool, err := location.Pool(pools, s.Dst.Pool)
	if err != nil {
		return 0, err
	}
	return location.FreeBytes(pool, sp.files.FreeBytes)
}
