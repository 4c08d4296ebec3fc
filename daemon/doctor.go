// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
)

// doctor looks for what on this host would stop a migration, before one finds
// out.
type doctor struct {
	cfg     *config
	rules   location.Rules
	hv      hv.Hypervisor
	guards  *guard.Dir
	proof   *hookProof
	uplink  *uplink.Uplink
	client  registryClient
	storage image.Storage
	// open returns the migrations of this host that are not over.
	open func(ctx context.Context) ([]api.Migration, error)

	fixing sync.Mutex
}

// registryClient is what doctor asks of the registry itself.
type registryClient interface {
	Version(ctx context.Context) (string, error)
	ClockAhead() (time.Duration, bool)
	Peer() (protocol.Announcement, bool)
}

func ok(name, message string) api.Check { return api.Check{Name: name, Status: "ok", Message: message} }

func (d *doctor) overlays() api.Check {
	const name = "overlays"
	if err := d.cfg.checkOverlayDir(); err != nil {
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "set overlay_dir to a directory on disk"}
	}
	free, err := d.storage.FreeBytes(d.cfg.OverlayDir)
	if err != nil {
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "make the directory, or set overlay_dir"}
	}
	message := fmt.Sprintf("%s has %s free for what guests write while their volumes move%s", d.cfg.OverlayDir, api.Bytes(free), d.largest())
	if free < d.cfg.OverlayMinFreeBytes {
		return api.Check{Name: name, Status: "warn", Message: message, Advice: "make room, or set overlay_dir to a larger filesystem"}
	}
	return ok(name, message)
}

// largest says how large an overlay may get.
func (d *doctor) largest() string {
	var largest api.Volume
	for _, vol := range d.uplink.AttachedHere() {
		if vol.SizeBytes > largest.SizeBytes {
			largest = vol
		}
	}
	if largest.ID == "" {
		return ""
	}
	return fmt.Sprintf("; a guest that writes all of its volume anew fills as much as that has, %s for the largest here (%s)", api.Bytes(largest.SizeBytes), largest.Name)
}

func (d *doctor) saves() api.Check {
	const name = "saves"
	if err := d.cfg.checkSaveDir(); err != nil {
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "set save_dir to a directory on disk"}
	}
	free, err := d.storage.FreeBytes(d.cfg.SaveDir)
	if err != nil {
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "make the directory, or set save_dir"}
	}
	return ok(name, fmt.Sprintf("%s has %s free for the memory of guests that are saved while a volume moves", d.cfg.SaveDir, api.Bytes(free)))
}

func (d *doctor) qemuImg() api.Check {
	path, err := qemuimg.Find()
	if err != nil {
		return api.Check{Name: "qemu-img", Status: "fail", Message: "qemu-img is not installed", Advice: "apt-get install qemu-utils"}
	}
	return ok("qemu-img", path)
}

// poolLow is when there is room for hardly a volume.
const poolLow = 1 << 30

func (d *doctor) pools(ctx context.Context) []api.Check {
	pools, err := d.hv.Pools(ctx)
	if err != nil {
		return nil // libvirt has its own line
	}
	if len(pools) == 0 {
		return []api.Check{{
			Name: "pools", Status: "warn", Message: "this host has no storage pool", Advice: "virsh pool-define-as, pool-start; or list directories in allowed_paths",
		}}
	}
	out := d.sharedPools(pools)
	for _, p := range pools {
		if !p.Active {
			out = append(out, api.Check{
				Name: "pool " + p.Name, Status: "warn", Message: "it is not active", Advice: "virsh pool-start " + p.Name,
			})
			continue
		}
		free, err := location.FreeBytes(p, d.storage.FreeBytes)
		if err != nil {
			out = append(out, api.Check{Name: "pool " + p.Name, Status: "warn", Message: err.Error(), Advice: "look at the filesystem of " + p.Path})
			continue
		}
		has := ok("pool "+p.Name, fmt.Sprintf("%s, %s free", p.Type, api.Bytes(free)))
		if free < poolLow {
			has.Status, has.Advice = "warn", "hardly a volume has room there; make room, or move some out of it (volferryctl pool drain "+p.Name+")"
		}
		out = append(out, has)
	}
	return out
}

// sharedPools looks for names of shared_pools that libvirt does not have: a
// mistyped one would not be shared.
func (d *doctor) sharedPools(pools []hv.PoolInfo) []api.Check {
	out := []api.Check{}
	for _, name := range d.cfg.SharedPools {
		if !slices.ContainsFunc(pools, func(p hv.PoolInfo) bool { return p.Name == name }) {
			out = append(out, api.Check{
				Name: "pool " + name, Status: "warn", Message: "shared_pools names it, and libvirt has no such pool",
				Advice: "virsh pool-define it, or take it out of shared_pools",
			})
		}
	}
	return out
}

// lost are the disks that a fence took and that domains still name: they are
// guarded as long as they do.
func (d *doctor) lost() []api.Check {
	out := []api.Check{}
	for _, l := range d.uplink.Lost() {
		out = append(out, api.Check{
			Name: "instance " + l.InstanceName, Status: "warn",
			Message: fmt.Sprintf("it is kept off: disk %s is volume %s at %s, which this host lost when it was fenced", l.Target, l.VolumeName, l.Path),
			Advice: fmt.Sprintf("virsh detach-disk %s %s --config; it may be started then, and the volume attached here again once it is free",
				l.InstanceName, l.Target),
		})
	}
	return out
}

// moves checks that no migration of this host has stopped.
func (d *doctor) moves(ctx context.Context) api.Check {
	open, err := d.open(ctx)
	if err != nil {
		return api.Check{Name: "moves", Status: "fail", Message: err.Error(), Advice: "look at the disk of the state directory"}
	}
	return api.CheckMoves(open)
}

// notes are the instances that are not as they were left.
func (d *doctor) notes() []api.Check {
	out := []api.Check{}
	for _, n := range d.uplink.Notes() {
		out = append(out, api.Check{Name: "instance " + n.InstanceName, Status: "warn", Message: n.Text}) // which says what to do
	}
	return out
}
