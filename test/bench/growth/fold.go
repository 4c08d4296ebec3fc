// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/site"
)

// sizeOfOverlay folds an overlay to which n MiB were written into a sparse volume.
func sizeOfOverlay(ctx context.Context, h *host, n int64) (p point, err error) {
	const spareMiB = 64
	instance, err := h.adoptInstance(ctx, 1, (n+spareMiB)<<20)
	if err != nil {
		return p, err
	}
	attachments, err := site.Get[[]api.Attachment](ctx, h.Caller, "attachments", "attachment", "list", "--instance", instance)
	if err != nil {
		return p, err
	}
	m, err := site.Get[api.Migration](ctx, h.Caller, "migration", "migration", "start", attachments[0].ID, "--to-pool", dstPool)
	if err != nil {
		return p, err
	}
	if err := h.writeOverlay(ctx, n); err != nil {
		return p, err
	}
	if _, err := h.Ctl(ctx, "--progress", "none", "migration", "copy", m.ID); err != nil {
		return p, err
	}
	return h.measured(func() error {
		_, err := h.Ctl(ctx, "--progress", "none", "migration", "complete", m.ID)
		return err
	})
}

// writeOverlay writes into the host's only overlay, which nobody has open, as its guest would have.
func (h *host) writeOverlay(ctx context.Context, mib int64) error {
	overlays, err := filepath.Glob(filepath.Join(h.Overlays(), "*.qcow2"))
	if err != nil || len(overlays) != 1 {
		return fmt.Errorf("find the overlay: %v, %w", overlays, err)
	}
	const stepMiB = 512 // qemu-io writes less than 2 GiB at once
	args := []string{"-f", "qcow2", "-t", "none"}
	for at := int64(0); at < mib; at += stepMiB {
		args = append(args, "-c", fmt.Sprintf("write -P 7 %dM %dM", at, min(stepMiB, mib-at)))
	}
	if out, err := exec.CommandContext(ctx, "qemu-io", append(args, overlays[0])...).CombinedOutput(); err != nil {
		return fmt.Errorf("write the overlay: %w: %s", err, out)
	}
	return nil
}
