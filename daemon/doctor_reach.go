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

// reach looks for directories that QEMU, which is not root, cannot pass, or in which it
// cannot open what is made there, and for images of instances that it cannot open: a guest
// would not start from there.
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
		if err == nil {
			err = d.storage.TryDirectory(user, dir)
		}
		var blocked *image.ReachError
		var cannot *image.OpenError
		switch {
		case errors.As(err, &cannot):
			out = append(out, api.Check{Name: name, Status: status, Message: cannot.Error()}) // which says what to do
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
		if location.IsOfDevices(dir) {
			continue // libvirt gives QEMU the device
		}
		look("the volumes in "+dir+", which allowed_paths allows", dir, "warn")
	}
	out = append(out, d.images(ctx)...)
	if len(out) == 0 {
		return []api.Check{ok(name, "its user gets to overlays and pools")}
	}
	return out
}

// images looks for images of instances that are off which QEMU could not open, where
// libvirt gives it none. Those that it gives say nothing before it has.
func (d *doctor) images(ctx context.Context) []api.Check {
	doms, err := d.hv.Domains(ctx)
	if err != nil {
		return nil // libvirt has its own line
	}
	out := []api.Check{}
	for i := range doms {
		user, err := d.hv.QEMUUser(ctx, doms[i].ID)
		if err != nil || user.Given || doms[i].State.Active() {
			continue
		}
		for _, disk := range doms[i].Config {
			var cannot *image.OpenError
			if disk.Device == "disk" && !disk.ReadOnly && errors.As(d.storage.MayOpen(user, disk.Top().Path), &cannot) {
				out = append(out, api.Check{Name: "instance " + doms[i].Name, Status: "warn", Message: cannot.Error()}) // which says what to do
			}
		}
	}
	return out
}
