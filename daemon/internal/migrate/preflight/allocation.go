// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// chooseAllocation decides whether a new file gets space for the whole volume at once, and adds a
// note if src's allocation differs. It refuses an allocation that the filesystem cannot provide.
func (c *Checks) chooseAllocation(s *move.Spec, t api.MigrationTarget) error {
	if err := c.dirs.MayWrite(s.Dst.Path); err != nil {
		return err
	}
	dir := filepath.Dir(s.Dst.Path)
	if s.ExternalCopy || s.Method == move.MethodLive {
		return c.noteSparse(s, dir)
	}
	how, err := c.allocation.Allocating(dir)
	if err != nil {
		return fmt.Errorf("look how files get room in %s: %w", dir, err)
	}
	asked := t.Allocation == api.AllocationThick || t.Allocation == api.AllocationThin
	s.Allocation = t.Allocation
	if !asked {
		if s.Allocation, err = c.allocationOf(s); err != nil {
			return err
		}
	}
	thick := s.Allocation == api.AllocationThick
	switch {
	case thick && !how.Ahead && asked:
		return api.Errorf(api.CodeInvalidArgument, "cannot migrate volume %s: the filesystem of %s gives a file no room before it is written to (fallocate); leave out --allocation thick, or name another place", s.VolumeName, dir)
	case thick && !how.Ahead:
		s.Allocation = api.AllocationThin
		s.Notes = append(s.Notes, fmt.Sprintf("the destination gets room as it is written to, and the source has all of its room: the filesystem of %s gives none before (fallocate)", dir))
	case !thick && s.MirrorFills && asked:
		return Unsupported(s, "disk %s of instance %s has no discard='unmap', without which this libvirt has QEMU write the holes of the source as data: --allocation thin is not to be had with a mirror; leave it out, or set discard='unmap'", s.Target, s.InstanceName)
	case !thick && s.MirrorFills:
		s.Allocation = api.AllocationThick
		s.Notes = append(s.Notes, fmt.Sprintf("the destination takes all of its room, and the source does not: without discard='unmap' at disk %s this libvirt has QEMU write holes as data", s.Target))
	case !thick && !how.Sparse && s.Dst.Format == api.FormatRaw && !asked:
		s.Allocation = api.AllocationThick
		s.Notes = append(s.Notes, fmt.Sprintf("the filesystem of %s has no holes in files, or does not say so, and all of the destination is counted; --allocation thin counts what the source takes", dir))
	}
	return c.noteStorage(s, dir)
}

// noteSparse adds notes about the allocation and the storage attributes of src that dst will lack.
// dst stays sparse, since programs other than the copier also write it.
func (c *Checks) noteSparse(s *move.Spec, dir string) error {
	allocation, err := c.allocationOf(s)
	if err != nil {
		return err
	}
	if allocation == api.AllocationThick {
		s.Notes = append(s.Notes, "the destination gets room as it is written to, and the source has all of its room")
	}
	return c.noteStorage(s, dir)
}

// allocationOf returns the allocation of src; an image that is no file counts as thin.
func (c *Checks) allocationOf(s *move.Spec) (string, error) {
	if !s.SrcKind().Filesystem || s.KeepsBase() {
		return api.AllocationThin, nil
	}
	thick, err := c.allocation.Thick(s.Src.Path, s.Src.WholeBytes())
	if err != nil {
		return "", fmt.Errorf("look what %s takes: %w", s.Src.Path, err)
	}
	if thick {
		return api.AllocationThick, nil
	}
	return api.AllocationThin, nil
}

func (c *Checks) noteStorage(s *move.Spec, dir string) error {
	if !s.SrcKind().Filesystem {
		return nil
	}
	left, err := c.allocation.AttributesLost(s.Src.Path, dir, s.Dst.Pool != "" && s.Dst.Format == api.FormatQcow2)
	if err != nil {
		return fmt.Errorf("look how files are stored in %s: %w", dir, err)
	}
	if len(left) > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("the destination does not keep of the source: %s", strings.Join(left, ", ")))
	}
	return nil
}

func checkAllocation(s *move.Spec, t api.MigrationTarget) error {
	if t.Allocation == "" || s.Allocation != "" {
		return nil
	}
	is := "is there already"
	if kind := s.DstKind(); !kind.Filesystem {
		is = "is " + kind.Name
	}
	return api.Errorf(api.CodeInvalidArgument, "cannot migrate volume %s: --allocation says how a new file gets its room, and %s %s; leave it out", s.VolumeName, s.Dst.Path, is)
}
