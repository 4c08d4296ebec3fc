// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// reach looks for directories that QEMU, which is not root, cannot pass: a guest would
// not start from there.
func (d *doctor) reach(ctx context.Context) []api.Check {
	const name = "qemu"
	user, err := d.hv.QEMUUser(ctx, "")
	switch {
	case errors.Is(err, hv.ErrUnavailable), errors.Is(err, hv.ErrUnsupported):
		return nil // libvirt has its own line, or QEMU has no user of its own
	case err != nil:
		return []api.Check{{Name: name, Status: "warn", Message: err.Error()}}
	}
	out := []api.Check{}
	look := func(what, dir, status string) {
		err := d.storage.Reach(user, dir)
		var blocked *image.ReachError
		switch {
		case errors.As(err, &blocked):
			out = append(out, api.Check{
				Name: name, Status: status, Message: "it does not get to " + what + ": " + blocked.Error(),
				Advice: "chmod o+x " + blocked.Dir + ", or setfacl -m u:USER:x for QEMU's user alone",
			})
		case err != nil:
			out = append(out, api.Check{Name: name, Status: "warn", Message: err.Error()})
		}
	}
	look("the overlays in "+d.cfg.OverlayDir, d.cfg.OverlayDir, "fail")
	pools, err := d.hv.Pools(ctx)
	if err != nil {
		pools = nil // libvirt has its own line
	}
	for _, p := range pools {
		if p.Active && location.HoldsFiles(p) {
			look("pool "+p.Name, p.Path, "warn")
		}
	}
	for _, dir := range d.cfg.AllowedPaths {
		look("the volumes in "+dir+", which allowed_paths allows", dir, "warn")
	}
	if len(out) == 0 {
		return []api.Check{ok(name, "its user gets to overlays and pools")}
	}
	return out
}
