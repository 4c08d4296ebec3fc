// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/internal/shell"
)

// ResolveDestination sets dst in the spec, and refuses a place that is not free.
func (c *Checks) ResolveDestination(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	s.Dst = api.Location{Format: s.Src.Format, SizeBytes: s.SizeBytes(), LUKSSecret: s.Src.LUKSSecret}
	if t.ToFormat != "" {
		s.Dst.Format = t.ToFormat
	}
	if t.KeepBase {
		s.Dst.Backing = s.Src.Backing
	}
	find := c.destinationAtPath
	if t.ToPool != "" {
		find = c.destinationInPool
	}
	if err := find(ctx, s, t); err != nil {
		return err
	}
	if err := checkAllocation(s, t); err != nil {
		return err
	}
	if err := c.findPool(ctx, s); err != nil {
		return err
	}
	if err := checkContainer(s); err != nil || !t.KeepBase {
		return err
	}
	return c.checkKeepBase(ctx, s)
}

func (c *Checks) checkKeepBase(ctx context.Context, s *move.Spec) error {
	switch {
	case !s.Src.IsLinkedClone():
		return api.Errorf(api.CodeInvalidArgument, "volume %s is no linked clone: it has no base images to keep; leave out --keep-base", s.VolumeName)
	case s.DstBlock || medium.IsNetwork(s.Dst.Path):
		return api.Errorf(api.CodeInvalidArgument, "--keep-base makes a qcow2 file, and %s is none; name a file or a pool of files, or leave out --keep-base", s.Dst.Path)
	case !s.CreateDst:
		return api.Errorf(api.CodeInvalidArgument, "%s exists already, and would hide what is in the base images; with --keep-base the destination is made by the move: name a file that is not there", s.Dst.Path)
	case s.Method == move.MethodMirror:
		return OnlyMirrored(s, "copies what is in the base images as well; leave out --keep-base, or stop the instance and run this again")
	case s.Method == move.MethodOverlay:
		return c.look.MayCopyBehind(ctx, s)
	}
	return nil
}

// checkContainer refuses a dst that cannot be a byte-for-byte copy of a LUKS container.
func checkContainer(s *move.Spec) error {
	switch {
	case !s.Src.IsLUKS():
	case s.Dst.Format != api.FormatRaw || medium.IsNetwork(s.Dst.Path):
		return api.Errorf(api.CodeInvalidArgument, "volume %s is encrypted by QEMU (LUKS), and such a volume moves only to a raw file or device", s.VolumeName)
	case s.Dst.IsSlice():
		return move.SizeMismatch(s.Src.Path, s.SizeBytes(), s.Dst.Path, s.Dst.ImageBytes)
	}
	return nil
}

func (c *Checks) destinationInPool(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	name := t.ToPool
	pools, err := c.hv.Pools(ctx)
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return request.NoHypervisor(err)
	case err != nil:
		return api.Errorf(api.CodeHypervisorUnavailable, "cannot look at the pools: %v", err)
	}
	pool, err := location.Pool(pools, name)
	if err != nil {
		return err
	}
	files := location.HoldsFiles(pool)
	if !files {
		if err := c.checkOnDevice(ctx, s, t, "pool "+name+" holds block devices"); err != nil {
			return err
		}
	}
	if s.Src.Pool == name && s.Src.Format == s.Dst.Format && s.Src.Backing == s.Dst.Backing { // a linked clone may become a full volume
		if t.KeepBase {
			return api.Errorf(api.CodeSameLocation, "volume %s is in pool %s already; without --keep-base it becomes a volume of its own there", s.VolumeName, name)
		}
		return api.Errorf(api.CodeSameLocation, "volume %s is in pool %s already", s.VolumeName, name)
	}
	s.CreateDst, s.DstBlock = true, !files
	s.Dst.Pool, s.Dst.Name = name, destinationName(s, files)
	s.Dst.Path = filepath.Join(pool.Path, s.Dst.Name)
	if files {
		err = location.CheckPoolPersistent(pool)
	} else {
		err = c.roundUp(ctx, s)
	}
	if err != nil {
		return err
	}
	if files {
		if err := c.chooseAllocation(s, t); err != nil {
			return err
		}
	}
	free, err := location.FreeBytes(pool, c.images.FreeBytes)
	if err != nil {
		return err
	}
	return c.checkDestinationSpace(s, free, files)
}

// checkOnDevice refuses an unrequested qcow2 image on a block device, and records the size that
// the device needs. where begins the refusal, as in "pool p holds block devices".
func (c *Checks) checkOnDevice(ctx context.Context, s *move.Spec, t api.MigrationTarget, where string) (err error) {
	switch {
	case s.Dst.Format == api.FormatRaw:
		return nil
	case s.LedByRegistry():
		return api.Errorf(api.CodeInvalidArgument, "%s, on which a move that the registry leads makes only raw images; say --to-format raw", where)
	case t.ToFormat == "" && !s.SrcBlock:
		return api.Errorf(api.CodeInvalidArgument, "%s, and volume %s is in a %s file; say --to-format raw, or --to-format %[3]s for a %[3]s image on a device", where, s.VolumeName, s.Dst.Format)
	}
	s.DstDeviceBytes, err = c.images.FullBytes(ctx, s.SizeBytes())
	return err
}

// roundUp sets dst to the size that its pool of devices will make. The volume is the beginning of
// it, or in the image on it.
func (c *Checks) roundUp(ctx context.Context, s *move.Spec) error {
	rounded, err := c.hv.RoundedBytes(ctx, s.Dst.Pool, s.DstRoomBytes())
	switch {
	case err != nil:
		return request.HV(err)
	case s.DstOnDevice():
		s.DstDeviceBytes = rounded
		return nil
	case rounded == s.SizeBytes():
		return nil
	case s.LedByRegistry():
		return api.Errorf(api.CodeSizeMismatch, "pool %s makes a volume of %s where volume %s has %s, and a move that the registry leads needs a destination of its size to the byte; make the volume larger first with volferryctl volume resize, or choose another pool",
			s.Dst.Pool, humanize.ExactBytes(rounded), s.VolumeName, humanize.ExactBytes(s.SizeBytes())).With("src_size_bytes", s.SizeBytes()).With("dst_size_bytes", rounded)
	}
	s.Dst.ImageBytes = rounded
	return nil
}

// destinationName returns an unused name with the migration's id, so that a person who finds the
// file can look it up.
func destinationName(s *move.Spec, file bool) string {
	name := fmt.Sprintf("%s-%s", s.VolumeName, s.MigrationID[:8])
	if file {
		name += "." + string(s.Dst.Format)
	}
	return name
}

// checkDestinationSpace refuses a dst without enough space: a sparse file needs the allocated
// bytes of src, other images the whole size. It notes if a sparse file may outgrow its place.
func (c *Checks) checkDestinationSpace(s *move.Spec, free int64, sparse bool) error {
	need := c.NeededBytes(s, sparse)
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

// NeededBytes returns the most space that dst may take. It is too low for scattered data of a raw
// src, which takes whole clusters of a qcow2 dst.
func (c *Checks) NeededBytes(s *move.Spec, sparse bool) int64 {
	need := s.DstRoomBytes()
	if s.Allocation == api.AllocationThick || s.MirrorFills && !s.DstBlock {
		return s.DstFileBytes()
	}
	if n, known := c.allocatedBytes(s); known && sparse {
		need = min(need, n)
	}
	return need
}

// allocatedBytes returns the most space for a copy of the data of src and the base images that are
// not kept; known is false if one of them is a device.
func (c *Checks) allocatedBytes(s *move.Spec) (total int64, known bool) {
	chain, times := s.SrcChain(), int64(1)
	if s.KeepsBase() { // each cluster of the top takes a cluster of dst, which may be larger
		chain = chain[:1]
		clusterBytes, err := c.images.ClusterBytes(s.Src.Path)
		if err != nil {
			return 0, false
		}
		times = max(1, image.ClusterBytes/clusterBytes)
	}
	for _, img := range chain {
		n, err := c.images.AllocatedBytes(img.Path)
		if err != nil || img.Type == hv.SourceBlock {
			return 0, false
		}
		total += times * n
	}
	return total, true
}

func (c *Checks) destinationAtPath(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	path := t.ToPath
	if medium.IsNetwork(path) {
		return c.destinationAtExport(ctx, s, t)
	}
	if st, err := location.Stat(path); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return api.Errorf(api.CodeInvalidArgument, "%s is a directory; name the file that is to be made in it, for example --to-path %s",
			path, filepath.Join(path, s.VolumeName+"."+string(s.Dst.Format)))
	}
	if err := checkElsewhere(s, path); err != nil {
		return err
	}
	if err := c.cfg.Rules.CheckPath(ctx, path); err != nil {
		return err
	}
	s.Dst.Path = path
	if err := c.checkNotUsed(ctx, s, path); err != nil {
		return err
	}
	connectable, err := location.Connectable(ctx, c.hv, path)
	switch {
	case err != nil:
		return look.HVRefusal(err)
	case connectable:
		return c.destinationToConnect(ctx, s, t)
	}
	info, err := c.images.Inspect(ctx, api.Location{Path: path, Format: s.Dst.Format})
	if !info.Block {
		// Mistyped devices would be files in /dev, which are lost at reboot.
		if err := location.CheckPersistent(path); err != nil {
			return err
		}
	}
	if errors.Is(err, image.ErrAbsent) {
		return c.destinationToCreate(s, t)
	}
	if info.Block && s.Dst.Format != api.FormatRaw {
		return c.destinationOnDevice(ctx, s, t)
	}
	if err != nil {
		return err
	}
	if s.DstPrint, err = c.images.Fingerprint(ctx, path); err != nil {
		return err
	}
	if err := c.released.CheckNotWritten(ctx, s, t); err != nil {
		return err
	}
	if err := c.checkDstNotLocked(ctx, path); err != nil {
		return err
	}
	s.DstBlock = info.Block
	switch {
	case info.SizeBytes == s.SizeBytes():
	case info.SizeBytes > s.SizeBytes() && s.Dst.Format == api.FormatRaw && !s.LedByRegistry():
		if err := checkAligned(path, info); err != nil {
			return err
		}
		s.Dst.ImageBytes = info.SizeBytes
	default:
		return move.SizeMismatch(s.Src.Path, s.SizeBytes(), path, info.SizeBytes)
	}
	if err := c.released.CheckNothingLost(ctx, s, t, info); err != nil || info.Block {
		return err
	}
	free, err := c.images.FreeBytes(filepath.Dir(path))
	if err != nil {
		return err
	}
	return c.checkDestinationSpace(s, free+info.AllocatedBytes, true)
}

// destinationOnDevice sets an existing block device, with any content, as the device of a qcow2
// dst.
func (c *Checks) destinationOnDevice(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	path := s.Dst.Path
	if err := c.checkOnDevice(ctx, s, t, path+" is a block device"); err != nil {
		return err
	}
	info, err := c.images.Inspect(ctx, api.Location{Path: path, Format: api.FormatRaw})
	if err != nil {
		return err
	}
	if info.SizeBytes < s.DstDeviceBytes {
		return image.TooSmallForQcow2(path, info.SizeBytes, s.SizeBytes(), s.DstDeviceBytes)
	}
	if s.DstPrint, err = c.images.Fingerprint(ctx, path); err != nil {
		return err
	}
	if err := c.released.CheckNotWritten(ctx, s, t); err != nil {
		return err
	}
	s.DstBlock = true
	return c.released.CheckNothingLost(ctx, s, t, info)
}

// destinationToConnect sets a target's volume as dst. Its size is unknown until it is connected,
// and must then be the volume's.
func (c *Checks) destinationToConnect(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	switch {
	case s.LedByRegistry():
		return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s: %s is a volume of a target, to which no move goes that the registry leads", s.VolumeName, s.Dst.Path)
	}
	if err := c.checkOnDevice(ctx, s, t, s.Dst.Path+" is a block device"); err != nil {
		return err
	}
	s.CreateDst, s.ConnectDst, s.DstBlock = true, true, true
	info, err := c.images.Inspect(ctx, api.Location{Path: s.Dst.Path, Format: api.FormatRaw})
	switch {
	case errors.Is(err, image.ErrAbsent):
	case err != nil:
		return err
	case s.DstOnDevice() && info.SizeBytes < s.DstDeviceBytes:
		return image.TooSmallForQcow2(s.Dst.Path, info.SizeBytes, s.SizeBytes(), s.DstDeviceBytes)
	case s.DstOnDevice():
	case info.SizeBytes < s.SizeBytes():
		return move.SizeMismatch(s.Src.Path, s.SizeBytes(), s.Dst.Path, info.SizeBytes)
	case info.SizeBytes > s.SizeBytes():
		s.Dst.ImageBytes = info.SizeBytes
	}
	return c.released.CheckNothingLost(ctx, s, t, image.Info{SizeBytes: s.DstRoomBytes(), Block: true})
}

// destinationAtExport sets an existing export, or an RBD image, which may have to be made, as dst.
func (c *Checks) destinationAtExport(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	path := t.ToPath
	if s.LedByRegistry() {
		return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s: %s is %s, to which no move goes that the registry leads", s.VolumeName, path, medium.AddressKind(path))
	}
	if s.Dst.Format != api.FormatRaw {
		return api.Errorf(api.CodeInvalidArgument, "%s is %s, which is raw; say --to-format raw", path, medium.AddressKind(path))
	}
	if err := c.cfg.Rules.CheckPath(ctx, path); err != nil {
		return err
	}
	if err := checkElsewhere(s, path); err != nil {
		return err
	}
	s.Dst.Path = path
	if err := c.checkNotUsed(ctx, s, path); err != nil {
		return err
	}
	info, err := c.images.Inspect(ctx, s.Dst)
	if err == nil {
		err = c.images.Fence(ctx, path)
	}
	if errors.Is(err, image.ErrAbsent) { // possible only for an RBD image
		s.CreateDst = true
		return nil
	}
	if err != nil {
		return look.HVRefusal(err) // of libvirt, which gives a cluster's key
	}
	switch {
	case info.SizeBytes < s.SizeBytes():
		return move.SizeMismatch(s.Src.Path, s.SizeBytes(), path, info.SizeBytes)
	case info.SizeBytes > s.SizeBytes():
		s.Dst.ImageBytes = info.SizeBytes
	}
	if s.DstPrint, err = c.images.Fingerprint(ctx, path); err != nil {
		return err
	}
	return c.released.CheckNothingLost(ctx, s, t, info)
}

// checkElsewhere refuses the volume's present path, by any name.
func checkElsewhere(s *move.Spec, path string) error {
	same, overlaps, err := location.PlaceOf(path).Meets(s.Src.Path)
	switch {
	case err != nil:
		return look.UserUnknown(path, err)
	case same:
		return api.Errorf(api.CodeSameLocation, "volume %s is at %s already", s.VolumeName, s.Src.Path)
	case overlaps:
		return api.Errorf(api.CodeSameLocation, "volume %s is at %s, and %s shares bytes with that: one is a part of the other, or both are names of one device", s.VolumeName, s.Src.Path, path)
	}
	return nil
}

// checkAligned refuses a larger file that QEMU may not be able to write.
func checkAligned(path string, info image.Info) error {
	if info.Block || info.SizeBytes%image.MaxAlignBytes == 0 {
		return nil
	}
	return api.Errorf(api.CodeSizeMismatch, "destination %s has %d bytes, which is no multiple of %d, and QEMU may refuse to write to it; make it larger or smaller with truncate, or name another destination",
		path, info.SizeBytes, image.MaxAlignBytes).With("dst_size_bytes", info.SizeBytes)
}

// CheckUneven refuses a dst that QEMU could not write with O_DIRECT: its size is no multiple of
// the filesystem's alignment. disk is the disk that moves, nil if there is not exactly one.
func (c *Checks) CheckUneven(s *move.Spec, disk *hv.Disk) error {
	if !transfer.DstIsUneven(s) || disk != nil && !disk.PastPageCache() {
		return nil
	}
	// QEMU opens the empty target of a mirror. A copy fills the first block.
	hole := s.Method == move.MethodMirror
	align, err := c.images.DirectAlignBytes(filepath.Dir(s.Dst.Path), hole)
	if err != nil {
		return fmt.Errorf("look how files are read in %s: %w", filepath.Dir(s.Dst.Path), err)
	}
	if s.Dst.WholeBytes()%align == 0 {
		return nil
	}
	whole := (s.SizeBytes() + align - 1) / align * align
	return api.Errorf(api.CodeSizeMismatch, "cannot migrate volume %s: it has %d bytes, and QEMU does not write past the page cache to a file in %s whose size is no multiple of %d; make it larger first: `%s`",
		s.VolumeName, s.SizeBytes(), filepath.Dir(s.Dst.Path), align, shell.Line("volferryctl", "volume", "resize", s.VolumeName, "--size", strconv.FormatInt(whole, 10))).With("src_size_bytes", s.SizeBytes()).With("align_bytes", align)
}

func (c *Checks) destinationToCreate(s *move.Spec, t api.MigrationTarget) error {
	dir := filepath.Dir(s.Dst.Path)
	free, err := c.images.FreeBytes(dir)
	if err != nil {
		return api.Errorf(api.CodeInvalidArgument, "cannot create %s: the directory %s does not exist, or volferryd cannot see it", s.Dst.Path, dir)
	}
	s.CreateDst = true
	if err := c.chooseAllocation(s, t); err != nil {
		return err
	}
	return c.checkDestinationSpace(s, free, true)
}

func (c *Checks) checkNotUsed(ctx context.Context, s *move.Spec, path string) error {
	return look.HVRefusal(c.look.CheckFree(ctx, path, location.Self{MigrationID: s.MigrationID}))
}
