// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// place is a directory for a move's images. needs are the images' requirements on its filesystem,
// and status is the check's status if QEMU could not use the directory.
type place struct {
	what, dir, status string
	needs             image.Needs
}

// reach makes an image in each directory that a move may use, and opens it as QEMU's user. It also
// reports instances with images that QEMU cannot open: these instances would not start.
func (d *Doctor) reach(ctx context.Context) []api.Check {
	const name = "qemu"
	user, confined, err := hv.ConfinedUser(ctx, d.HV, "")
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return nil // libvirt has its own check
	case err != nil:
		return []api.Check{{Name: name, Status: "warn", Message: err.Error()}}
	}
	out := []api.Check{}
	places := d.places(ctx)
	for _, p := range places {
		out = append(out, d.try(user, p)...)
	}
	out = append(out, d.images(ctx)...)
	if len(out) > 0 {
		return out
	}
	who := "as QEMU's user, " + image.UserName(user)
	if !confined || user.UID == 0 {
		who = "as root, like QEMU"
	} else if !user.Given {
		who = "as root (libvirt does not give images to " + image.UserName(user) + ", so each image is checked separately)"
	}
	return []api.Check{ok(name, fmt.Sprintf("an image was made and opened in %s, %s", humanize.Count(len(places), "place"), who))}
}

func (d *Doctor) try(user hv.ProcessUser, p place) []api.Check {
	const name = "qemu"
	if err := location.CheckWritableDir(p.dir); err != nil {
		return []api.Check{{Name: "sandbox", Status: p.status, Message: err.Error()}}
	}
	err := d.Storage.Reach(user, p.dir)
	if err == nil {
		err = d.Storage.TryDirectory(user, p.dir, p.needs)
	}
	var blocked *image.ReachError
	var cannot *image.OpenError
	var limit *image.LimitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &limit):
		return []api.Check{{Name: "filesystem", Status: p.status, Message: p.what + ": " + limit.Error()}}
	case errors.As(err, &cannot):
		return []api.Check{{Name: name, Status: p.status, Message: cannot.Error()}}
	case errors.As(err, &blocked):
		return []api.Check{{
			Name: name, Status: p.status, Message: "QEMU cannot reach " + p.what + ": " + blocked.Error(),
			Advice: "chmod o+x " + blocked.Dir + ", or setfacl -m u:USER:x for QEMU's user alone",
		}}
	}
	return []api.Check{{Name: name, Status: "warn", Message: "cannot create and open an image for " + p.what + ": " + err.Error()}}
}

func (d *Doctor) places(ctx context.Context) []place {
	direct := d.pastPageCache(ctx)
	out := []place{{"the overlays in " + d.Cfg.Overlays(), d.Cfg.Overlays(), "fail", image.Needs{Named: true, Direct: direct, Kept: true}}}
	pools, err := d.HV.Pools(ctx)
	if err != nil {
		pools = nil
	}
	for _, p := range pools {
		if p.Active && location.HoldsFiles(p) {
			out = append(out, place{"pool " + p.Name, p.Path, "warn", image.Needs{Direct: direct, Kept: true}})
		}
	}
	for _, dir := range d.Cfg.AllowedPaths {
		if !location.IsOfDevices(dir) { // libvirt gives QEMU access to devices
			out = append(out, place{"the volumes in " + dir + ", which allowed_paths allows", dir, "warn", image.Needs{Named: true, Direct: direct, Kept: true}})
		}
	}
	return out
}

// placesOfGuests is places with the directory of the memory of saved guests, which libvirt writes.
func (d *Doctor) placesOfGuests(ctx context.Context) []place {
	return append(d.places(ctx), place{what: "the memory of saved guests in " + d.Cfg.SaveDir, dir: d.Cfg.SaveDir, status: "fail"})
}

func (d *Doctor) pastPageCache(ctx context.Context) bool {
	doms, err := d.HV.Domains(ctx)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(doms, func(dom hv.Domain) bool {
		return slices.ContainsFunc(dom.Config, func(disk hv.Disk) bool { return disk.PastPageCache() })
	})
}

// images reports images of stopped instances that QEMU could not open. It skips an instance if
// libvirt makes QEMU's user the owner at a start: then the present owner proves nothing.
func (d *Doctor) images(ctx context.Context) []api.Check {
	doms, err := d.HV.Domains(ctx)
	if err != nil {
		return nil
	}
	out := []api.Check{}
	for i := range doms {
		user, err := d.HV.QEMUUser(ctx, doms[i].ID)
		if err != nil || user.Given || doms[i].State.Active() {
			continue
		}
		for _, disk := range doms[i].Config {
			var cannot *image.OpenError
			if disk.Device == "disk" && !disk.ReadOnly && errors.As(d.Storage.MayOpen(user, disk.Top().Path), &cannot) {
				out = append(out, api.Check{Name: "instance " + doms[i].Name, Status: "warn", Message: cannot.Error()})
			}
		}
	}
	return out
}
