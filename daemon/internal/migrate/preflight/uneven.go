// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// CheckUneven refuses a dst that QEMU could not write with O_DIRECT: its size is no multiple of
// the filesystem's alignment. disk is the disk that moves, nil if there is not exactly one.
func (c *Checks) CheckUneven(s *move.Spec, disk *hv.Disk) error {
	if !transfer.DstIsUneven(s) || disk != nil && !disk.PastPageCache() {
		return nil
	}
	// QEMU opens the empty target of a mirror. A copy first fills the first block.
	hole := s.Method == move.MethodMirror
	align, err := c.dirs.DirectAlignBytes(filepath.Dir(s.Dst.Path), hole)
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
