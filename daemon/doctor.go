// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
)

// doctor looks for what on this host would stop a migration, before one finds
// out.
type doctor struct {
	cfg     *config
	hv      hv.Hypervisor
	guards  *instance.Guards
	uplink  *uplink.Uplink
	storage image.Storage
}

// checks looks at everything once.
func (d *doctor) checks(ctx context.Context) []api.Check {
	out := []api.Check{d.libvirt(), d.registry(ctx), d.hook(), d.overlays(), d.qemuImg()}
	return append(out, d.pools(ctx)...)
}

func ok(name, message string) api.Check { return api.Check{Name: name, Status: "ok", Message: message} }

func (d *doctor) libvirt() api.Check {
	if d.hv.Up() {
		return ok("libvirt", "connected")
	}
	return api.Check{Name: "libvirt", Status: "fail", Message: "libvirt does not answer", Advice: "systemctl start libvirtd, or set libvirt_socket"}
}

func (d *doctor) registry(ctx context.Context) api.Check {
	if err := d.uplink.Refresh(ctx); err != nil {
		return api.Check{Name: "registry", Status: "fail", Message: err.Error(), Advice: "start volferry-registry, or set registry"}
	}
	return ok("registry", "connected at "+d.cfg.Registry)
}

func (d *doctor) hook() api.Check {
	err := d.guards.Enforced()
	if errors.Is(err, instance.ErrHookLooksElsewhere) {
		return api.Check{Name: "hook", Status: "warn", Message: err.Error()} // which says what to do
	}
	if err != nil {
		return api.Check{
			Name: "hook", Status: "warn", Message: err.Error(),
			Advice: "install volferry-guard as " + d.cfg.LibvirtHook + " (mode 0755) and restart libvirtd; running guests are not touched by that",
		}
	}
	return ok("hook", "libvirt asks "+d.cfg.LibvirtHook+" before it starts an instance")
}

func (d *doctor) overlays() api.Check {
	const name = "overlays"
	if err := d.cfg.checkOverlayDir(); err != nil {
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "set overlay_dir to a directory on disk"}
	}
	free, err := d.storage.FreeBytes(d.cfg.OverlayDir)
	if err != nil {
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "make the directory, or set overlay_dir"}
	}
	message := fmt.Sprintf("%s has %d MiB free for what guests write while their volumes move", d.cfg.OverlayDir, free>>20)
	if free < d.cfg.OverlayMinFreeBytes {
		return api.Check{Name: name, Status: "warn", Message: message, Advice: "make room, or set overlay_dir to a larger filesystem"}
	}
	return ok(name, message)
}

func (d *doctor) qemuImg() api.Check {
	path, err := qemuimg.Find()
	if err != nil {
		return api.Check{Name: "qemu-img", Status: "fail", Message: "qemu-img is not installed", Advice: "apt-get install qemu-utils"}
	}
	return ok("qemu-img", path)
}

func (d *doctor) pools(ctx context.Context) []api.Check {
	pools, err := d.hv.Pools(ctx)
	if err != nil {
		return nil // libvirt has its own line
	}
	if len(pools) == 0 {
		return []api.Check{{
			Name: "pools", Status: "warn", Message: "this host has no storage pool", Advice: "virsh pool-define-as, pool-start; or move volumes with --to-path",
		}}
	}
	out := []api.Check{}
	for _, p := range pools {
		if !p.Active {
			out = append(out, api.Check{
				Name: "pool " + p.Name, Status: "warn", Message: "it is not active", Advice: "virsh pool-start " + p.Name,
			})
			continue
		}
		out = append(out, ok("pool "+p.Name, fmt.Sprintf("%s, %d MiB free", p.Type, p.FreeBytes>>20)))
	}
	return out
}
