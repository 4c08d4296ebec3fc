// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// offloadTimeout is longer than a storage needs to copy one range.
const offloadTimeout = 3 * time.Minute

// offload describes how the storage of src and dst copies by itself. It returns nil if the storage
// cannot. If the storage refuses to copy, refused is called with the reason.
func (e *Env) offload(ctx context.Context, s *move.Spec, refused func(pool string, err error)) *copy.Offload {
	if len(s.SrcChain()) != 1 || !plainDevice(s.SrcImage()) || !plainDevice(s.DstImage()) {
		return nil
	}
	c, err := e.hv.FindDeviceCopy(ctx, s.Src.Path, s.Dst.Path)
	if err != nil {
		if !errors.Is(err, hv.ErrNotFound) {
			e.log.WarnContext(ctx, "cannot find out whether a storage copies a volume by itself", "migration", s.MigrationID, "src", s.Src.Path, "dst", s.Dst.Path, "err", err)
		}
		return nil
	}
	return &copy.Offload{
		GranularityBytes: c.GranularityBytes, Offered: c.Offered && c.SizeBytes == s.SizeBytes(),
		Ask: func(ctx context.Context, off, n int64) (until int64, answered bool, err error) {
			ctx, cancel := context.WithTimeout(ctx, offloadTimeout)
			defer cancel()
			until, err = e.copyDevice(ctx, *c, off, n)
			switch {
			case errors.Is(err, hv.ErrNoAnswer), errors.Is(err, hv.ErrUnavailable):
				return 0, false, err
			case errors.Is(err, hv.ErrUnsupported):
				return 0, true, fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
			}
			return until, true, e.refusedCopy(err)
		},
		Refused: func(err error) {
			e.log.WarnContext(ctx, "the storage does not copy a volume by itself: Volferry does", "migration", s.MigrationID, "pool", c.Pool, "err", err)
			refused(c.Pool, err)
		},
	}
}

const busyTries = 10

func (e *Env) copyDevice(ctx context.Context, c hv.DeviceCopy, off, n int64) (until int64, err error) {
	for try := 1; ; try++ {
		until, err = e.hv.CopyDevice(ctx, c, off, n)
		if !errors.Is(err, hv.ErrBusy) || try == busyTries {
			return until, err
		}
		select {
		case <-time.After(request.BusyDelay):
		case <-ctx.Done():
			return until, err
		}
	}
}

func (*Env) refusedCopy(err error) error {
	if err == nil || errors.As(err, new(*api.Error)) {
		return err
	}
	return api.Errorf(api.CodeHypervisorUnavailable, "%v; run the copy again, it goes on where it stopped", err)
}

// plainDevice reports whether an image is a whole raw block device, so that the guest sees exactly
// its bytes.
func plainDevice(i hv.Image) bool {
	return i.Type == hv.SourceBlock && i.Format == string(api.FormatRaw) && i.SliceBytes == 0
}

// dstIsAnswered refuses a dst while the storage may still be copying a range there: the storage
// could overwrite the guest's next writes with data of src.
func (e *Env) dstIsAnswered(_ context.Context, s *move.Spec) error {
	open, err := e.copier.Unanswered(s.CopyKey())
	if err != nil || !open {
		return err
	}
	return api.Errorf(api.CodeStateForbidden,
		"the storage of %s was asked to copy a part of volume %s and has not answered, so that it may be at work on it; run the copy once more, which asks it for the same again (`%s`)",
		s.Dst.Path, s.VolumeName, shell.Line("volferryctl", "migration", "copy", s.MigrationID))
}
