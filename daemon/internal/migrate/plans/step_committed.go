// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

func (e *Env) stepAdmitCommitted() op.Step {
	return e.stepAdmit(overlay.AdmitCommittedStep, e.wasCommitted, func(s *move.Spec) string {
		remark := fmt.Sprintf("somebody else had committed the overlay of instance %s into %s, and the guest has gone on there; the overlay is kept, for you to delete: %s",
			s.InstanceName, s.Src.Path, s.Overlay)
		if left := e.Overlay.BesideOverlay(s); left != "" {
			remark += "; " + left
		}
		return remark
	})
}

// wasCommitted returns nil if the guest's process moved from the overlay to src and kept its disk
// all the time: in QEMU only a commit of the overlay does that. A guest that was started on src,
// or with a disk that was detached and attached again, lacks the data of the overlay. So the
// process must have been switched to the overlay by start, or started with it.
func (e *Env) wasCommitted(ctx context.Context, s *move.Spec, opID string) error {
	disk, err := e.Look.ConfirmDisk(ctx, s)
	if err != nil {
		return err
	}
	open, err := e.Look.OpenImages(ctx, s)
	if err != nil {
		return err
	}
	if !disk.Active || disk.Live != move.OnSrc || disk.Mirror != nil || !open.SrcWritable || !open.Agrees(s, disk) || disk.Config != move.OnSrc && disk.Config != move.OnOverlay {
		return look.ChainChanged(s, disk)
	}
	p, err := e.history.Facts(ctx, s, opID)
	if err != nil {
		return err
	}
	process, err := e.hv.Process(ctx, s.InstanceID, s.Target)
	if err != nil {
		return request.AwaitHypervisor(err)
	}
	if wasOn := slices.Contains(process.Images, s.Overlay) || p.Process != "" && p.Process == process.ID; !wasOn || !process.Kept {
		return api.Errorf(api.CodeChainChanged,
			"instance %s runs on %s, and nothing shows that its overlay was committed into it: it may have been started there, and lack what is in %s. Nothing was changed; docs/how-to/recover.md (A source that was written) says what can be done",
			s.InstanceName, s.Src.Path, s.Overlay)
	}
	return nil
}

// OverlayWasCommitted reports whether another program is known to have committed the overlay into
// src under the guest.
func (e *Env) OverlayWasCommitted(ctx context.Context, s *move.Spec) bool {
	p, err := e.history.Facts(ctx, s, "")
	return err == nil && !p.Folding && e.wasCommitted(ctx, s, "") == nil
}

// CommittedByOthers reports whether libvirt and the kernel agree that the guest is on src. It is
// called if no cancel has brought the guest there: another program has committed the overlay, or
// has pivoted an unfinished cancel's commit.
func (e *Env) CommittedByOthers(ctx context.Context, s *move.Spec) (bool, error) {
	disk, err := e.Move.ReadDisk(ctx, s)
	if err == nil && (disk.Live != move.OnSrc || disk.Mirror != nil) {
		return false, nil
	}
	var open *look.OpenImages
	if err == nil {
		open, err = e.Look.OpenImages(ctx, s)
	}
	if err != nil {
		return false, move.CannotLookAt(s, err)
	}
	return open.Agrees(s, disk), nil
}
